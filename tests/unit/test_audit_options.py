"""What the audit's commands make of errors."""

import pytest

from sidecar.cli.audit_options import audit_errors
from sidecar.errors import TimewheelError


class _SparkError(Exception):
    """As py4j's and PySpark's are told apart from others: by their module."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "An error occurred while calling o5.save.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(C:1)\n"
            "Caused by: java.io.IOException: No space left on device\n\tat d.e(F.java:2)\n\t... 5 more\n",
            "java.io.IOException: No space left on device",
        ),
        (
            "An error occurred while calling o1.load.\n: java.lang.OutOfMemoryError: Java heap space\n\tat a.b(C:1)\n",
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        ("[PATH_NOT_FOUND] Path does not exist\nmore", "[PATH_NOT_FOUND] Path does not exist"),
        ("", "_SparkError"),
    ],
)
def test_an_error_of_sparks_is_its_cause_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(TimewheelError) as caught, audit_errors():
        raise _SparkError(text)
    assert str(caught.value) == f"Spark has failed: {told}"
