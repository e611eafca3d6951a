"""The installed version; pyproject.toml is the only place that states it."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    try:
        return version("timewheel")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
