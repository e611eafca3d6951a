"""What is given as an argument: on a command line, where it need not be text, or to a class of ours."""


def argument_bytes(argument: str) -> bytes:
    """As it was typed: Python keeps what is no UTF-8 as surrogates."""
    return argument.encode(errors="surrogateescape")


def at_least_one(name: str, given: int) -> int:
    """The same number; raises ValueError below 1."""
    if given < 1:
        raise ValueError(f"{name} is {given}; the least is 1")
    return given
