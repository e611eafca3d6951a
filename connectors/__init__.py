"""What applications import to schedule, cancel and retry with Timewheel; also the wire contract everybody shares.

    from connectors import ConsumeResult, RetryingConsumer, ScheduledProducer

What is named here is the public API; it is loaded when it is first used, so that importing the contract alone costs no
Kafka client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.async_producer import AsyncScheduledProducer
    from connectors.client_options import ProtectedOptionError
    from connectors.consumer import RetryingConsumer
    from connectors.consuming.message import ConsumeContext, ConsumedMessage, ConsumeResult, MessageModel
    from connectors.contract import DelayLevels, Header, TopicNames
    from connectors.dead_letters import DeadLetters
    from connectors.pending_receipt import PendingReceipt
    from connectors.producer import ScheduledProducer
    from connectors.receipt import Receipt, ReceiptError
    from connectors.schedule_record import RecordGoneError, ScheduleError

_HOMES = {
    "AsyncScheduledProducer": "connectors.async_producer",
    "ConsumeContext": "connectors.consuming.message",
    "ConsumeResult": "connectors.consuming.message",
    "ConsumedMessage": "connectors.consuming.message",
    "DeadLetters": "connectors.dead_letters",
    "DelayLevels": "connectors.contract",
    "Header": "connectors.contract",
    "MessageModel": "connectors.consuming.message",
    "PendingReceipt": "connectors.pending_receipt",
    "ProtectedOptionError": "connectors.client_options",
    "Receipt": "connectors.receipt",
    "ReceiptError": "connectors.receipt",
    "RecordGoneError": "connectors.schedule_record",
    "RetryingConsumer": "connectors.consumer",
    "ScheduleError": "connectors.schedule_record",
    "ScheduledProducer": "connectors.producer",
    "TopicNames": "connectors.contract",
}

__all__ = [
    "AsyncScheduledProducer",
    "ConsumeContext",
    "ConsumeResult",
    "ConsumedMessage",
    "DeadLetters",
    "DelayLevels",
    "Header",
    "MessageModel",
    "PendingReceipt",
    "ProtectedOptionError",
    "Receipt",
    "ReceiptError",
    "RecordGoneError",
    "RetryingConsumer",
    "ScheduleError",
    "ScheduledProducer",
    "TopicNames",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
