"""What stands on a command line, which need not be text."""


def argument_bytes(argument: str) -> bytes:
    """As it was typed: Python keeps what is no UTF-8 as surrogates."""
    return argument.encode(errors="surrogateescape")
