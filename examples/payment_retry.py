"""A bank that is down: a payment that fails comes back after a growing delay, and the others do not wait for it.

python examples/payment_retry.py
"""

import argparse

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
arguments = parser.parse_args()

kafka = {"bootstrap.servers": arguments.bootstrap_servers}
admin = AdminClient(kafka)
admin.create_topics([NewTopic("payments", 3)])["payments"].exception()  # may be there already

producer = Producer(kafka)
for payment in ("alice", "bob", "carol"):
    producer.produce("payments", b"17 EUR", payment)
producer.flush()

consumer = RetryingConsumer(
    {**kafka, "group.id": "billing", "auto.offset.reset": "earliest"},
    ["payments"],
    concurrency=1,  # or several print at a time
)
charged: set[str] = set()  # in earnest: a table with message_id as its key


@consumer.listener
def charge(message: ConsumedMessage) -> ConsumeResult:
    payer = (message.key or b"").decode()
    if payer == "bob" and message.reconsume_times < 2:
        print(f"{payer}: the bank is down (attempt {message.reconsume_times + 1})", flush=True)
        message.retry_level = 1  # in a second; without it 10 s, 30 s, 1 min, ... 2 h
        return ConsumeResult.RECONSUME_LATER  # an exception does the same
    charged.add(payer)
    print(f"{payer}: charged {(message.value or b'').decode()}, from {message.topic}", flush=True)
    if charged == {"alice", "bob", "carol"}:
        consumer.stop()
    return ConsumeResult.CONSUME_SUCCESS


consumer.run()
