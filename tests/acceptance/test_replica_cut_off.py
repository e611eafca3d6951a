"""A replica that is cut off from Kafka for longer than its session lasts, in the middle of a transaction.

What it has sent before arrives when the link returns: half a minute too late, as its partitions are another's by then.
"""

import random
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from tests.support.kafka import Headers, Kafka, judge
from tests.support.proxy import END_TXN, TXN_OFFSET_COMMIT, Fate, KafkaProxy
from tests.support.replicas import ASSIGNED, assigned, two_replicas, wait_shared
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, is_drained, now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(500)]

CUT_MS = 30_000
HOT_RECORDS = 3_000
"""Due in one second, on the wheel and on the levels each: who is cut off then has a transaction in hand."""


def test_what_a_replica_sends_before_it_is_cut_off_is_refused_when_it_arrives_after_the_takeover(
    prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(13)
    expected: list[str] = []
    with (
        EmbeddedKafka() as broker,
        KafkaProxy(broker.bootstrap_servers) as link,
        two_replicas((link.bootstrap_servers, broker.bootstrap_servers), prefix, tmp_path, batch_records=200) as both,
    ):
        far, near = both
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders", 3)

        def on_wheel(due_ms: int) -> Produced:
            expected.append(f"w{len(expected)}")
            return timed(prefix, destination, expected[-1], ("TIMER_DELIVER_MS", due_ms))

        def on_level() -> Produced:
            expected.append(f"l{len(expected)}")
            headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", expected[-1].encode())]
            return f"{prefix}SCHEDULE_TOPIC_XXXX-1", expected[-1].encode(), b"v" * 100, headers

        def cut_off_in(call: int) -> None:
            """The link ends before this call of the transaction has passed."""
            cut_ms: list[int] = []

            def decide(api: int) -> Fate:
                if api == call and not cut_ms:
                    link.cut()
                    cut_ms.append(now_ms())
                return Fate.ANSWERED

            slot_ms = now_ms() // 1_000 * 1_000 + 2_000
            before, began_with = delivered(far), restarts(far)
            kafka.produce(on_wheel(slot_ms + chance.randrange(1_000)) for _ in range(HOT_RECORDS))
            kafka.produce(on_level() for _ in range(HOT_RECORDS))
            wait_until(lambda: delivered(far) > before + HOT_RECORDS / 10, "the one that will be cut off sends", 60)
            link.decide = decide
            wait_until(lambda: cut_ms, "it is cut off", 60)
            wait_until(lambda: assigned(near) == ASSIGNED, "the other takes over", 60)
            wait_until(lambda: now_ms() - cut_ms[0] > CUT_MS, "half a minute", 60)
            link.mend()
            wait_until(lambda: restarts(far) > began_with, "it notices that it has been replaced", 60)
            wait_shared(both, 90)

        wait_shared(both, 90)
        began_ms = now_ms()
        kafka.produce(on_wheel(began_ms + chance.randrange(90_000)) for _ in range(8_000))
        for call in (END_TXN, TXN_OFFSET_COMMIT):
            cut_off_in(call)
        wait_until(lambda: is_drained(kafka, prefix, far, near), "nothing is pending", 120, poll_s=0.5)
        kafka.read([destination], len(expected), 120)
        for replica in both:
            assert replica.terminate(30)[0] == 0
        judge(expected, kafka.read([destination], len(expected))).assert_exactly_once()


def delivered(replica: SidecarProcess) -> float:
    return replica.metric("timewheel_delivered_records_total")


def restarts(replica: SidecarProcess) -> float:
    """How often it has made new clients: Kafka has refused it, or a call of the old ones has not returned."""
    return replica.metric("timewheel_client_restarts_total")
