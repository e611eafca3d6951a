"""A shop that goes on until it is stopped: orders have a time to be paid, and a bank that fails is asked again later.

python examples/shop.py --orders 5
"""

import argparse
import itertools
import signal
import threading

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer, ScheduledProducer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
parser.add_argument("--every", type=float, default=2.0, help="seconds between orders")
parser.add_argument("--timeout", default="10s", help="how long an order may be unpaid, such as 15m")
parser.add_argument("--orders", type=int, help="stop once so many are settled; default: on SIGTERM")
arguments = parser.parse_args()

kafka = {"bootstrap.servers": arguments.bootstrap_servers}
admin = AdminClient(kafka)
for future in admin.create_topics([NewTopic("unpaid-orders", 3), NewTopic("order-payments", 3)]).values():
    future.exception()  # may be there already

stop = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.set())

consumer = RetryingConsumer(
    {**kafka, "group.id": "shop", "auto.offset.reset": "earliest"},
    ["unpaid-orders", "order-payments"],
    concurrency=1,  # or several print at a time
)
settled: set[str] = set()  # in earnest: a table


@consumer.listener
def settle(message: ConsumedMessage) -> ConsumeResult:
    order = (message.key or b"").decode()
    if message.topic == "order-payments" and message.reconsume_times < 1 and order.endswith("3"):
        print(f"{order}: the bank is down, in a second again", flush=True)
        message.retry_level = 1
        return ConsumeResult.RECONSUME_LATER
    print(f"{order}: {'paid' if message.topic == 'order-payments' else 'not paid in time, cancelled'}", flush=True)
    settled.add(order)
    if arguments.orders is not None and len(settled) >= arguments.orders:
        stop.set()
    return ConsumeResult.CONSUME_SUCCESS


payments = Producer(kafka)
with consumer, ScheduledProducer(kafka) as producer:
    for number in itertools.count(1) if arguments.orders is None else range(1, arguments.orders + 1):
        order = f"order-{number}"
        receipt = producer.send("unpaid-orders", "unpaid", key=order, delay=arguments.timeout)
        print(f"{order}: placed, {arguments.timeout} to be paid", flush=True)
        if number % 4:  # every fourth is never paid
            producer.cancel(receipt)
            payments.produce("order-payments", b"17 EUR", order)
            payments.flush()
        if stop.wait(arguments.every):
            break
    stop.wait()
