"""When is the broker ready: a client gets its metadata from it, and its controller has answered a request."""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.clock import Deadline
from connectors.embedded.ports import HOST

_POLL_S = 0.02
_REQUEST_TIMEOUT_S = 5.0


class Readiness:
    """Asks one broker, of one cluster, whether it is ready; with that it has the given topics made."""

    def __init__(self, port: int, cluster_id: str, topics: Sequence[NewTopic]) -> None:
        self._port = port
        self._cluster_id = cluster_id
        self._topics = list(topics)

    def wait(self, *, is_alive: Callable[[], bool], deadline: Deadline) -> bool:
        """True when the broker is ready, False when it died or the deadline passed first."""
        # 1. Somebody listens: asked without a Kafka client, which would wait longer and longer between its attempts.
        while not self._listens():
            if not is_alive() or deadline.is_over:
                return False
            time.sleep(_POLL_S)
        # 2. and 3. are asked again until both are answered; nothing of it is printed.
        client = AdminClient({"bootstrap.servers": f"{HOST}:{self._port}", "log_level": 0})
        while is_alive() and not deadline.is_over:
            with contextlib.suppress(KafkaException):
                if self._has_metadata(client, deadline) and self._controller_answers(client, deadline):
                    return True
            time.sleep(_POLL_S)
        return False

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=_REQUEST_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _has_metadata(self, client: AdminClient, deadline: Deadline) -> bool:
        """2. The broker is registered, and it is ours: another one may have been quicker to take the port."""
        metadata = client.list_topics(timeout=_timeout_s(deadline))
        return bool(metadata.brokers) and metadata.cluster_id == self._cluster_id

    def _controller_answers(self, client: AdminClient, deadline: Deadline) -> bool:
        """3. A creation of topics goes through the broker to the controller; after the first start it says: exists."""
        timeout_s = _timeout_s(deadline)
        answers = client.create_topics(self._topics, request_timeout=timeout_s, operation_timeout=timeout_s)
        return all(_is_answered(answer.result, timeout_s) for answer in answers.values())


def _is_answered(result: Callable[[float], object], timeout_s: float) -> bool:
    try:
        result(timeout_s + 1)
    except TimeoutError:
        return False
    except KafkaException as failure:
        # A refusal for good (it exists; a policy forbids it) is an answer too; a client's own complaint is not.
        error = failure.args[0]
        return error.code() > 0 and not error.retriable()
    return True


def _timeout_s(deadline: Deadline) -> float:
    return max(0.1, min(_REQUEST_TIMEOUT_S, deadline.left_s))
