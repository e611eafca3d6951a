"""Where a broker has run: the controller runs alone for a moment and fences it, before the new one starts.

Kafka 4.3 takes a partition without a leader for a deleted one when it sends the markers that end a transaction. Without
this, a broker restarted still leads everything in the metadata that it loads, so its coordinator queues the markers
that are due; a moment later the controller ends the dead broker's session, nothing has a leader, and

    Couldn't find leader endpoint for partitions Set(b-2, b-1, b-0) while trying to send transaction markers for x,
    these partitions are likely deleted already and hence can be skipped

stands in the log: the transaction counts as complete, but no reader of committed records ever gets past it, and offsets
committed with it stay pending for ever. Fenced beforehand, nothing has a leader when the coordinator starts, everything
gets one at once with the registration of the new broker, and only then is the coordinator loaded. The new registration
need not wait for the end of the old session either.

A broker that stops in good order has the controller take all that it leads from it, while its coordinator still works:
the same again. Of fourteen such stops under the load of eight producers twelve had such lines in their logs, and one
left a transaction hanging; so ours stops without that (``controlled.shutdown.enable``), as if it were killed, but with
its logs closed. Of nineteen stops none had.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from connectors.clock import Deadline

# What the controller does alone. A broker's session begins when the controller takes office, and is looked at every
# eighth of its timeout. Records that say nothing are written meanwhile, the first one interval after that moment.
PROPERTIES: Mapping[str, str] = {
    "broker.session.timeout.ms": "40",
    "broker.heartbeat.interval.ms": "20",  # nobody's; more than half of the timeout is complained of
    "metadata.max.idle.interval.ms": "60",
}
# These lines say that such a record has been committed, and with it all that was written before.
LOG_FLAG = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller.QuorumController=debug"
_COMMITTED = b"Processed writeNoOpRecord("
# The first is due after the session's end, and comes before the fencing only if the machine pauses the controller in
# the middle of a look at the sessions; the second is due an interval after the first.
_COMMITTED_TIMES = 2

# It lives for a second: the quick compiler and the small collector are all it needs.
JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true", "-XX:-UsePerfData")

_POLL_S = 0.01


def wait_until_fenced(log_path: Path, *, is_alive: Callable[[], bool], deadline: Deadline) -> bool:
    """True when no session of a dead broker is left in the metadata on disk, also when there was none.

    False when the controller, which writes that log, died or the deadline passed first.
    """
    seen, rest = 0, b""
    with log_path.open("rb") as log:
        while True:
            goes_on = is_alive() and not deadline.is_over
            text = rest + log.read()
            seen += text.count(_COMMITTED)
            if seen >= _COMMITTED_TIMES:
                return True
            if not goes_on:
                return False
            rest = text[-(len(_COMMITTED) - 1) :]
            time.sleep(_POLL_S)
