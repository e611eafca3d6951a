"""Plans kept small: Spark's planner takes longer over a plan that refers to itself than over the rows.

`settled` computes rows at once, so that what is built on them is planned without what they were built of. `hinted` is
for joins with what is nearly always small or empty: asking first spares a shuffle of everything else.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_SMALL_ROWS = 200_000


def settled(frame: DataFrame) -> DataFrame:
    """The same rows, computed now and kept by the executors."""
    return frame.localCheckpoint()


def hinted(frame: DataFrame) -> DataFrame | None:
    """The same, settled, with a hint to broadcast it where it is small; None where it is empty."""
    kept = settled(frame)
    rows = kept.limit(_SMALL_ROWS + 1).count()
    if rows == 0:
        return None
    return F.broadcast(kept) if rows <= _SMALL_ROWS else kept
