"""Transactions whose requests reach Kafka and whose answers do not come back: what became of a commit is not known."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from connectors.embedded import EmbeddedKafka
from tests.acceptance.test_levels import scheduled
from tests.support.kafka import Kafka, judge
from tests.support.proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Fate,
    KafkaProxy,
)
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, is_drained, now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 20_000
"""Half of them over the levels, half on the wheel."""
TRANSACTION_APIS = (PRODUCE, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN)


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """One of its own: it is known under one address."""
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def proxy(broker: EmbeddedKafka, sidecar: SidecarProcess) -> Iterator[KafkaProxy]:
    """Between the sidecar and the broker; the test itself reaches the broker directly."""
    with KafkaProxy(broker.bootstrap_servers) as running:
        sidecar.settings |= {"bootstrap_servers": running.bootstrap_servers, "batch_records": 100}
        sidecar.settings |= {"slots_total": 3_600, "roll_window": "6s"}
        yield running
        sidecar.__exit__(None, None, None)  # it would complain of a broker that is gone


def deliver_all(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    """Schedule on levels and wheel, and judge what has come when nothing more can come."""
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    pid, began_ms = sidecar.process.pid, now_ms()
    due = [(f"w{number}", began_ms + 2_000 + number) for number in range(RECORDS // 2)]
    wheel: list[Produced] = [timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms)) for name, due_ms in due]
    kafka.produce([*wheel, *scheduled(prefix, destination, RECORDS // 2)])
    kafka.read([destination], RECORDS, 300)
    wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 60, poll_s=0.5)
    assert sidecar.process.pid == pid
    assert sidecar.terminate(30)[0] == 0
    names = [*(name for name, _ in due), *map(str, range(RECORDS // 2))]
    judge(names, kafka.read([destination], RECORDS)).assert_exactly_once()


@pytest.mark.timeout(400)
def test_commits_whose_answers_are_lost_are_neither_lost_nor_repeated(
    broker: EmbeddedKafka, proxy: KafkaProxy, prefix: str, sidecar: SidecarProcess
) -> None:
    numbers = count(1)
    proxy.decide = lambda api: Fate.ANSWER_LOST if api == END_TXN and next(numbers) % 3 == 0 else Fate.ANSWERED
    deliver_all(Kafka(broker.bootstrap_servers), prefix, sidecar)
    assert proxy.met[END_TXN, Fate.ANSWER_LOST] >= 50


@pytest.mark.timeout(500)
def test_any_call_of_a_transaction_may_be_lost_with_its_answer_or_without(
    broker: EmbeddedKafka, proxy: KafkaProxy, prefix: str, sidecar: SidecarProcess
) -> None:
    """Seldom enough: librdkafka never returns from some of these calls, and new clients take seconds to take over."""
    calls: Counter[int] = Counter()

    def decide(api: int) -> Fate:
        if api not in TRANSACTION_APIS:
            return Fate.ANSWERED
        calls[api] += 1
        return {0: Fate.ANSWER_LOST, 25: Fate.REQUEST_LOST}.get(calls[api] % 50, Fate.ANSWERED)

    proxy.decide = decide
    deliver_all(Kafka(broker.bootstrap_servers), prefix, sidecar)
    for fate in (Fate.REQUEST_LOST, Fate.ANSWER_LOST):
        assert all(proxy.met[api, fate] >= 2 for api in TRANSACTION_APIS), f"{fate}: {proxy.met}"
