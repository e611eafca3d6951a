"""What the audit's commands say of an error that is Spark's."""

import pytest

from sidecar.cli.audit_options import audit_errors, is_uri, known_master
from sidecar.errors import TimewheelError, UsageError

THROWN_BY_JAVA = """An error occurred while calling o2652.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows
\tat org.apache.spark.sql.Errors.taskFailed(Errors.scala:765)
Caused by: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Executor.run(Executor.scala:1)
Caused by: java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds
\t... 15 more
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            THROWN_BY_JAVA,
            "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows; caused by "
            "java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds",
        ),
        ("An error occurred while calling o1.start.\n: java.io.IOException: no space", "java.io.IOException: no space"),
        ("An error occurred while calling o1.start.", "An error occurred while calling o1.start."),
        ("[PATH_NOT_FOUND] Path does not exist\n;\n'Project", "[PATH_NOT_FOUND] Path does not exist"),
        ("", "ThrownError"),
    ],
    ids=["causes", "no cause", "nothing of Java's", "Spark's own", "empty"],
)
def test_what_spark_fails_with_is_told_with_its_cause(text: str, told: str) -> None:
    thrown = type("ThrownError", (Exception,), {"__module__": "py4j.protocol"})
    with pytest.raises(TimewheelError) as raised, audit_errors():
        raise thrown(text)
    assert str(raised.value) == f"Spark has failed: {told}"


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("s3a://bucket/audit", True), ("hdfs:/audit", True), ("file:/audit", True), ("audit", False), ("/a:/b", False)],
)
def test_a_directory_elsewhere_is_known_by_its_scheme(path: str, *, is_one: bool) -> None:
    assert is_uri(path) is is_one


@pytest.mark.parametrize(
    "master",
    [
        None,
        "local",
        "local[*]",
        "local[2]",
        "local[2, 3]",
        "local[*,3]",
        "local-cluster[2,1,1024]",
        "spark://a:7077,b:7077",
        "k8s://https://host:6443",
        "yarn",
    ],
)
def test_a_master_of_spark_s_is_left_to_spark(master: str | None) -> None:
    assert known_master(master) == master


@pytest.mark.parametrize("master", ["foo", "local[x]", "local[2", "localhost:7077", "spark:/host", "YARN", " "])
def test_what_is_no_master_is_refused_before_java_is_started(master: str) -> None:
    with pytest.raises(UsageError, match=r"--master .* is no place where Spark runs; write local"):
        known_master(master)
