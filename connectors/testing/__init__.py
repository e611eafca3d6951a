"""An in-memory Kafka for tests: the clients' methods, a clock that is moved by hand, and faults on request.

    kafka = InMemoryKafka()
    kafka.create_topic("orders", 3)

    producer = kafka.producer({"partitioner": "murmur2_random"})      # as confluent_kafka.Producer(config)
    producer.produce("orders", b"value", b"key", headers=[("name", b"text")])
    producer.flush()

    consumer = kafka.consumer({"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(1.0)                                      # a real confluent_kafka.Message

Hand the clients to the code under test where it would make its own. No thread runs, nothing sleeps, nothing is random:
the same calls give the same answers. A call that finds nothing to do moves the `ManualClock` on by its timeout, or up
to the moment at which something happens by itself (a session or a transaction that times out); ``clock.advance`` does
it from outside, and with it an hour's delay passes in no time. (`AsyncScheduledProducer` and the consumer's ``start``
and ``run`` have threads here too; that producer's moves no clock, and where that matters, turn a consumer with
``poll``. Threads may share a producer.)

**Crashes.** Clients that die together belong to one process:

    process = kafka.process("worker")
    run(process.consumer({...}), process.producer({...}))
    process.kill()       # nothing is closed: membership and transaction stay until they time out or are taken over
    process.suspend()    # SIGSTOP: no heartbeats; the next call wakes it

**Faults.** Each call passes labelled points (`LABELS`), and at each something may go wrong (`POSSIBLE`):

    kafka.faults.at("commit_transaction:after", TIME_OUT)             # committed, but the client is not told
    kafka.faults.at("produce:before", CRASH, nth=3)                   # raises SimulatedCrash, a BaseException
    kafka.faults.refuse("orders", larger_than_bytes=1_000)            # deliveries fail for good
    kafka.faults.seed(random.Random(seed), rate=0.01)                 # anything, anywhere
    kafka.make_unavailable(5_000)
    assert not kafka.faults.unreached()

What is promised to be as on a broker is what the contract tests hold against both. **What is known to differ:**

- Sending takes no time: queued records are appended before anybody's next call, a batch a partition. (A producer's own
  ``abort_transaction`` comes before its queue; on a broker either may win.) Of several batches the first that fails
  keeps the rest from being sent.
- Nothing is fetched ahead, so what retention removes is gone at once, and ``pause`` has nothing to throw away. Records
  of several partitions come a partition at a time, not interleaved.
- Markers are written with the commit unless LATE_MARKERS delays them, and transactions time out on time; a broker looks
  every 10 s. An overdue transaction is fenced, as there.
- Rebalances take no time: heartbeats come as long as the process is neither dead nor suspended, however long it does
  not poll (there is no ``max.poll.interval.ms``), and only dead or suspended members are waited for. Which partition
  moves is not librdkafka's choice. Empty ``on_assign`` calls come once a rebalance, as there.
- A record without a key goes to the partitions in turn; records for a topic that does not exist fail at once, not after
  ``topic.metadata.propagation.max.ms``; the offset in a failed delivery's report is never set.
- Of what makes a producer without transactions fatal, a refused record with ``enable.gapless.guarantee`` does it here.
- ``send_offsets_to_transaction`` respects its timeout. librdkafka's may wait longer, even for ever.
- ``on_commit`` is told a refusal as a whole: no partition has an error of its own.
- Some mistakes are not refused: ``commit`` for partitions that do not exist or with negative offsets, ``store_offsets``
  beside ``enable.auto.offset.store``, ``subscribe`` with nothing or with a text, header values that are a
  ``bytearray``, and negative partitions of ``produce``.
- A fatal error is told by the call that meets it, not by any ``poll`` or ``flush`` that comes first.
- One broker, no replication, no ACLs, no compaction, no quotas, no KIP-848 protocol; retention is ``delete_records``.
"""

from connectors.clock import Clock
from connectors.testing.admin import InMemoryAdmin
from connectors.testing.clock import ManualClock
from connectors.testing.consumer import InMemoryConsumer
from connectors.testing.errors import SimulatedCrash
from connectors.testing.faults import CRASH, LABELS, POSSIBLE, TIME_OUT, Fault, Faults, Kind, Refusal
from connectors.testing.kafka import InMemoryKafka
from connectors.testing.membership import ConsumerGroupMetadata
from connectors.testing.process import Process
from connectors.testing.producer import InMemoryProducer

__all__ = [
    "CRASH",
    "LABELS",
    "POSSIBLE",
    "TIME_OUT",
    "Clock",
    "ConsumerGroupMetadata",
    "Fault",
    "Faults",
    "InMemoryAdmin",
    "InMemoryConsumer",
    "InMemoryKafka",
    "InMemoryProducer",
    "Kind",
    "ManualClock",
    "Process",
    "Refusal",
    "SimulatedCrash",
]
