"""A reminder hours ahead, and another time for it.

python examples/reminder.py --delay 3h
timewheel pending --topic reminders
"""

import argparse
from datetime import datetime

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors import Receipt, ScheduledProducer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
parser.add_argument("--delay", default="3h", help="such as 90s or 3h")
parser.add_argument("--later", help="change one's mind: another delay, such as 3h30m")
arguments = parser.parse_args()

kafka = {"bootstrap.servers": arguments.bootstrap_servers}
admin = AdminClient(kafka)
admin.create_topics([NewTopic("reminders", 3)])["reminders"].exception()  # may be there already


def tell(what: str, receipt: Receipt) -> None:
    at = datetime.fromtimestamp(receipt.deliver_ms / 1000).astimezone()
    print(f"{what} for {at:%Y-%m-%d %H:%M:%S %Z}; its receipt: {receipt.encode()}")


with ScheduledProducer(kafka) as producer:
    receipt = producer.send("reminders", "your table is booked for tonight", key="guest-7", delay=arguments.delay)
    tell("scheduled", receipt)
    if arguments.later:
        receipt = producer.reschedule(receipt, delay=arguments.later)
        tell("rescheduled", receipt)
