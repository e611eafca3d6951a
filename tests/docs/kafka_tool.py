"""Kafka's own command-line tools under their usual names, from the embedded broker's jars.

python -m tests.docs.kafka_tool kafka-topics.sh --bootstrap-server localhost:9092 --list
"""

import sys

from connectors.embedded import run_tool

TOOLS = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def main(name: str, *arguments: str) -> int:
    ended = run_tool(TOOLS[name], arguments, input=sys.stdin.buffer.read())
    sys.stdout.buffer.write(ended.stdout)
    sys.stderr.buffer.write(ended.stderr)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
