"""How to get what Timewheel's optional extras bring. No package index has it: it is installed from a checkout."""


def how_to_install(extra: str) -> str:
    """For a message about a package that is missing."""
    return f"in a checkout of Timewheel, run pip install '.[{extra}]'"
