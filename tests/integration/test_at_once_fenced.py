"""A request over HTTP whose transactional id somebody else takes: nothing is done, and the next has new clients."""

import pytest

from connectors.clients import KafkaClients
from connectors.clock import SystemClock
from connectors.contract import DelayLevels, TopicNames
from connectors.dead_letters.cluster import Cluster
from sidecar.front.at_once import AtOnce, Done, Key, NothingDoneError, TransactionalScheduler, Work
from sidecar.front.key_ledger import KeyLedger
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_nothing_is_done_while_another_takes_the_id_and_all_goes_on(kafka: Kafka, prefix: str) -> None:
    """In one long flush confluent-kafka raises SystemError in place of the fatal error, with the reports that come."""
    names, config, clients = TopicNames(prefix), {"bootstrap.servers": kafka.bootstrap_servers}, KafkaClients()
    kafka.create_topic(names.wheel, 4)
    identity = f"{prefix}id"
    at_once = AtOnce(
        lambda: TransactionalScheduler(config, identity, names, DelayLevels((1_000,)), clients),
        lambda: KeyLedger(Cluster(config, clients), names.idempotency),
        SystemClock(),
    )

    def ask(name: str) -> Done:
        begin = [lambda scheduler: scheduler.begin_send("orders", name, delay_ms=1_000)] * 5
        return at_once.submit(Work(begin, Key(name, "body"))).result(60)

    for turn in range(3):
        assert not ask(f"before {turn}").is_replay
        another = clients.producer({**config, "transactional.id": identity})
        another.init_transactions(30)
        with pytest.raises(NothingDoneError):
            ask(f"fenced {turn}")
    assert not ask("fenced 0").is_replay
    expected = [b"before %d" % turn for turn in range(3)] + [b"fenced 0"]
    assert sorted(str(record.value) for record in kafka.read([names.wheel], 20)) == sorted(map(str, expected * 5))
