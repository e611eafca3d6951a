"""Run Kafka's own command-line tools from the broker's jars."""

import os
import subprocess
from collections.abc import Sequence

from connectors.embedded.class_archive import ClassArchive
from connectors.embedded.errors import EmbeddedKafkaError
from connectors.embedded.jars import class_path
from connectors.embedded.java import find_java

# A tool lives for a second: the quick compiler and the small collector are all it needs.
_JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LOG_FLAGS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")


def run_tool(
    main_class: str,
    args: Sequence[str],
    *,
    input: bytes | None = None,  # noqa: A002  as subprocess.run calls it
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run one tool to its end and return its exit code, stdout and stderr; a non-zero exit code is not an error here.

        run_tool("org.apache.kafka.tools.ConsoleProducer", [*connection, "--topic", "orders"], input=b"hello\\n")

    Raises `EmbeddedKafkaError` when the tool takes longer than `timeout_s`, or jars or Java are not to be had.
    """
    java, jars = find_java(), class_path()
    archive = ClassArchive.of(java, jars)
    command = [str(java.path), *_JVM_FLAGS, *archive.flags_to_use(), *_LOG_FLAGS, main_class, *args]
    try:
        done = subprocess.run(
            command,
            input=input or b"",  # never this process's own
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | {"CLASSPATH": jars},
        )
    except subprocess.TimeoutExpired as error:
        seen = (error.stderr or b"").decode(errors="replace")[-2000:]
        raise EmbeddedKafkaError(f"{main_class} did not end within {timeout_s:g} s. Its stderr:\n{seen}") from error
    return subprocess.CompletedProcess([main_class, *args], done.returncode, done.stdout, done.stderr)
