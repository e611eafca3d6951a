"""The receipt of a scheduled message: one opaque word that says where it waits and what it is called.

>>> receipt = Receipt(schedule_topic="SCHEDULE_TOPIC_XXXX-1", partition=0, id="a1", topic="orders", deliver_ms=5)
>>> Receipt.decode(receipt.encode()) == Receipt.decode(str(receipt)) == receipt
True
"""

import base64

import msgspec

_VERSION = 1


class ReceiptError(ValueError):
    """The word is no receipt of Timewheel's."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a scheduled message waits; a word that `encode` writes and `decode` reads."""

    schedule_topic: str = msgspec.field(name="s")
    """Where the record waits."""
    partition: int = msgspec.field(name="p")
    """Of the schedule topic."""
    offset: int = msgspec.field(name="o", default=0)
    """Of the record there."""
    id: str = msgspec.field(name="i")
    """The message's ``UNIQ_KEY``."""
    topic: str = msgspec.field(name="t")
    """The destination."""
    deliver_ms: int = msgspec.field(name="d")
    """When the message is due."""
    key: bytes | None = msgspec.field(name="k", default=None)
    """The record's."""
    cancellable: bool = msgspec.field(name="c", default=True)
    """False on a level topic."""
    version: int = msgspec.field(name="v", default=1)  # of a word that names none
    """The format of the word that it was read from."""

    def encode(self) -> str:
        """The word."""
        told = msgspec.structs.replace(self, version=_VERSION)
        return base64.urlsafe_b64encode(msgspec.json.encode(told)).decode().rstrip("=")

    def __str__(self) -> str:
        return self.encode()

    @classmethod
    def decode(cls, word: str) -> "Receipt":
        """Raises ReceiptError for anything that `encode` did not write."""
        try:
            padded = word.strip() + "=" * (-len(word.strip()) % 4)
            receipt = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=cls)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            remedy = "pass the value of \"receipt\", or in a command the whole line that 'timewheel send' printed"
            raise ReceiptError(f"'{word[:40]}' is not a receipt; {remedy}") from error
        if receipt.version != _VERSION:
            raise ReceiptError(f"the receipt is of version {receipt.version}; this Timewheel reads {_VERSION}")
        return receipt

    @classmethod
    def of(cls, given: "Receipt | str") -> "Receipt":
        """A receipt, or the word that it was written as. Raises ReceiptError."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, str):
            raise ReceiptError(
                f"a {type(given).__name__} is not a receipt; pass a Receipt, or the word that it encodes to"
            )
        return cls.decode(given)

    def to_dict(self) -> dict[str, object]:
        """What commands and the HTTP API show."""
        shown: dict[str, object] = {
            "receipt": self.encode(),
            "id": self.id,
            "topic": self.topic,
            "partition": self.partition,
            "deliver_ms": self.deliver_ms,
        }
        if not self.cancellable:
            shown["cancellable"] = False
        return shown
