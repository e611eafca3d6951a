"""An application with a `RetryingConsumer`, to be killed: notes what its listener has handled, and fails every tenth.

python -m tests.support.consuming_app BOOTSTRAP PREFIX NOTES [orderly]
"""

import os
import sys

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer, TopicNames


def fails(value: bytes) -> bool:
    return int(value) % 10 == 0


def main(bootstrap_servers: str, prefix: str, notes: str, *mode: str) -> None:
    consumer = RetryingConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{prefix}g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
        },
        [f"{prefix}payments"],
        names=TopicNames(prefix),
        orderly=bool(mode),
        max_reconsume_times=0 if mode else None,
        suspend="10ms",
    )
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        value = message.value or b""
        os.write(file, value + b"\n")
        return ConsumeResult.RECONSUME_LATER if fails(value) else ConsumeResult.CONSUME_SUCCESS

    consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
