"""Waiting for a producer's answers without losing one of them, nor the error that says that it is of no more use.

confluent-kafka cuts a call that waits for longer than 200 ms into several. It calls delivery callbacks in one of them
while a fatal error of the one before is set already: the call then raises SystemError in place of it, and the report is
lost (seen with 2.16).
"""

from collections.abc import Callable

TURN_S = 0.1
"""How long one call waits."""


def flush_in_turns(flush: Callable[[float], int], timeout_s: float) -> int:
    """``Producer.flush``, for about so long; how many records are still out.

    Raises:
        KafkaException: the producer is of no more use.
    """
    still_out = flush(min(TURN_S, timeout_s))
    for _ in range(round(timeout_s / TURN_S) - 1):
        if not still_out:
            break
        still_out = flush(TURN_S)
    return still_out
