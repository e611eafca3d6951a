"""Kafka options that name their value instead of being it, so that secrets stay where they are kept.

``${dir:/etc/kafka:password}`` is the content of a file, ``${env:PASSWORD}`` an environment variable: the words of
Kafka's DirectoryConfigProvider and EnvVarConfigProvider (KIP-632, KIP-887). They are read when the process starts.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"\$\{(?:dir:(?P<directory>[^:}]+):(?P<file>[^:}/]+)|env:(?P<variable>[^:}]+))\}")

MAX_BYTES = 1 << 20
"""No password or certificate is larger than this."""


class Resolved(str):
    """A value that has come from elsewhere, whatever it is: not to be shown."""

    __slots__ = ()


def resolve(option: str, value: str, environ: Mapping[str, str] | None = None) -> str:
    """The value with what it names in its place; any other text is left as it is.

    Raises:
        ValueError: what it names is not there; tells the option and the name, never a value.
    """

    def read(reference: re.Match[str]) -> str:
        if (variable := reference["variable"]) is not None:
            known = os.environ if environ is None else environ
            if variable not in known:
                raise ValueError(f"{option} names {reference[0]}: there is no such environment variable")
            return known[variable]
        path = Path(reference["directory"], reference["file"])
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{option} names {reference[0]}: {path} cannot be read: {error.strerror}") from None
        if len(content) > MAX_BYTES:
            raise ValueError(f"{option} names {reference[0]}: {path} is larger than 1 MiB, and no secret")
        try:
            return content.decode().removesuffix("\n")  # as `echo` and editors leave it
        except UnicodeDecodeError:
            raise ValueError(f"{option} names {reference[0]}: {path} is not UTF-8 text") from None

    resolved, count = _REFERENCE.subn(read, value)
    return Resolved(resolved) if count else value
