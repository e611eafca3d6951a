"""x"""

from connectors.testing.admin import InMemoryAdmin
from connectors.testing.clock import Clock, ManualClock
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
