"""How many bytes go into one transaction: as many as the brokers take in a second or so.

A transaction that is not sent within half of ``transaction_timeout`` fails as a whole. Over a slow link, or under a
producer quota, one of ``batch_bytes`` would fail each time, and nothing would ever go out. So the limit is halved when
a transaction fails or takes long, and doubled when one is quick. It outlives the clients: those of a transaction that
came to nothing are mostly lost with it.
"""

LEAST_BYTES = 16 * 1024
"""A record goes alone, however large it is."""

LONG_MS = 2_000
QUICK_MS = 500


class BatchLimit:
    """For one sidecar.

    Args:
        most_bytes: ``batch_bytes``, the limit while all goes well.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = most_bytes

    def failed(self) -> None:
        """A transaction came to nothing, or its clients are lost."""
        self.bytes = max(min(LEAST_BYTES, self._most_bytes), self.bytes // 2)

    def committed(self, took_ms: float) -> None:
        """One is final that took so long, from its first record to Kafka's answer."""
        if took_ms > LONG_MS:
            self.failed()
        elif took_ms < QUICK_MS:
            self.bytes = min(2 * self.bytes, self._most_bytes)
