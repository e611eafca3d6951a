"""Where fetched jars and class archives are kept between runs."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$TIMEWHEEL_CACHE_DIR`, else `$XDG_CACHE_HOME/timewheel`, else `~/.cache/timewheel`; it need not exist yet."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get("TIMEWHEEL_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "timewheel"
    return Path.home() / ".cache" / "timewheel"
