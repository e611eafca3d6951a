"""Joins with what is nearly always small or empty: asking first spares a shuffle of everything else."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_SMALL_ROWS = 200_000


def hinted(frame: DataFrame) -> DataFrame | None:
    """The same, persisted, with a hint to broadcast it where it is small; None where it is empty."""
    kept = frame.persist()
    rows = kept.limit(_SMALL_ROWS + 1).count()
    if rows == 0:
        kept.unpersist()
        return None
    return F.broadcast(kept) if rows <= _SMALL_ROWS else kept
