"""Fetch what the embedded broker needs and record its class archive, so that the first start is quick and offline.

    python -m connectors.embedded

Exit code 0 when a broker has started and stopped here, 1 with the reason otherwise.
"""

import sys

from connectors.embedded import EmbeddedKafka, EmbeddedKafkaError
from connectors.embedded.jars import jars_dir, kafka_version
from connectors.embedded.java import find_java


def main() -> int:
    try:
        with EmbeddedKafka():
            java = find_java()
    except EmbeddedKafkaError as error:
        print(f"timewheel: {error}", file=sys.stderr)
        return 1
    print(f"Kafka {kafka_version()} in {jars_dir()}, Java {java.version} at {java.path}: ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
