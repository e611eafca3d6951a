"""What can never be handled becomes a dead letter after its last attempt, and blocks nobody.

python examples/poison_message.py
timewheel dlq show invoicing
"""

import argparse
import json

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
arguments = parser.parse_args()

kafka = {"bootstrap.servers": arguments.bootstrap_servers}
admin = AdminClient(kafka)
admin.create_topics([NewTopic("invoices", 1)])["invoices"].exception()  # may be there already

producer = Producer(kafka)
for value in ('{"total": 10}', "this is no JSON", '{"total": 20}'):
    producer.produce("invoices", value)
producer.flush()

consumer = RetryingConsumer(
    {**kafka, "group.id": "invoicing", "auto.offset.reset": "earliest"},
    ["invoices"],
    max_reconsume_times=1,
    concurrency=1,  # or several print at a time
)


@consumer.listener
def store(message: ConsumedMessage) -> ConsumeResult:
    message.retry_level = 1
    try:
        invoice = json.loads(message.value or b"")
    except ValueError:
        print(f"{message}: attempt {message.reconsume_times + 1} failed", flush=True)
        return ConsumeResult.RECONSUME_LATER
    print(f"an invoice over {invoice['total']}", flush=True)
    return ConsumeResult.CONSUME_SUCCESS


with consumer:
    letters = Consumer(
        {**kafka, "group.id": "watch", "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1_000}
    )
    letters.subscribe(["DLQ-invoicing"])
    while (letter := letters.poll(1)) is None or letter.error():
        pass
    print(f"a dead letter: {(letter.value() or b'').decode()}", flush=True)
    letters.close()
