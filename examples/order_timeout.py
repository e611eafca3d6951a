"""Orders that nobody pays are cancelled after a while. Paying takes the timeout back.

python examples/order_timeout.py --timeout 15m
"""

import argparse

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer, ScheduledProducer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
parser.add_argument("--timeout", default="5s", help="how long an order may be unpaid, such as 15m")
arguments = parser.parse_args()

kafka = {"bootstrap.servers": arguments.bootstrap_servers}
admin = AdminClient(kafka)
admin.create_topics([NewTopic("order-timeouts", 3)])["order-timeouts"].exception()  # may be there already

consumer = RetryingConsumer(
    {**kafka, "group.id": "orders", "auto.offset.reset": "earliest"},
    ["order-timeouts"],
    concurrency=1,  # or several print at a time
)
unpaid = {"order-1", "order-2", "order-3"}

with ScheduledProducer(kafka) as producer:
    receipts = {}
    for order in sorted(unpaid):
        # The key decides the partition, so that everything about one order stays in order.
        receipts[order] = producer.send("order-timeouts", "unpaid", key=order, delay=arguments.timeout)
        print(f"{order} is placed, and has {arguments.timeout} to be paid")

    unpaid.remove("order-2")
    producer.cancel(receipts["order-2"])  # receipt.encode() is a word to keep with the order, Receipt.decode reads it
    print("order-2 is paid")


@consumer.listener
def cancel_order(message: ConsumedMessage) -> ConsumeResult:
    order = (message.key or b"").decode()
    if order in unpaid:  # a message may be seen twice, after a crash: what it does must not depend on how often
        unpaid.remove(order)
        print(f"{order} was not paid in time, and is cancelled", flush=True)
    if not unpaid:
        consumer.stop()
    return ConsumeResult.CONSUME_SUCCESS


consumer.run()
