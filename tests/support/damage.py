"""What may happen to a data directory while no sidecar runs."""

import random
import shutil
from pathlib import Path

DAMAGES = ("none", "removed", "truncated", "overwritten")


def damage(data: Path, how: str, chance: random.Random) -> None:
    """Do one of `DAMAGES` to a data directory, or to a file in it that ``chance`` picks."""
    files = sorted(path for path in data.rglob("*") if path.is_file() and path.name != "lock")
    if how == "none" or not files:
        return
    if how == "removed":
        shutil.rmtree(data)
        return
    victim = chance.choice(files)
    size = victim.stat().st_size
    with victim.open("r+b") as file:
        if how == "truncated":
            file.truncate(chance.randrange(size + 1))
        else:
            file.seek(chance.randrange(size + 1))
            file.write(chance.randbytes(64))
