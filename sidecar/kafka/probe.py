"""Asks whether any broker answers and, where none does, why.

A call that no broker answers fails with "Local: Broker transport failure", whatever the cause. librdkafka tells that
beside its calls, to the client's error callback; of a connection that the broker just closes, in its log alone. Both
are served by ``poll``, which nobody calls for the other admin clients.

    librdkafka's error          cause                                           what to check
    _AUTHENTICATION             the login is refused                            sasl.*
    _SSL                        certificates: the broker's, or ours             ssl.*
    _RESOLVE                    no such host                                    bootstrap_servers, DNS
    "SSL routines" in another   our certificate is missing, or not accepted     ssl.*
    "SSL handshake failed"      TLS is spoken to a listener that does not       security.protocol
    "SSL connection closed …"   the same, where the listener was quick to go    security.protocol
    (in the log) Disconnected   the listener wants TLS or a login               security.protocol
    "Invalid response size"     another server than Kafka answers, or TLS       bootstrap_servers, security.protocol
    _TRANSPORT and others       refused, no route, too slow                     bootstrap_servers, the network
    none: metadata is answered  where the brokers are, nobody gets to           advertised.listeners
    none: it is not             packets are dropped, or the brokers hang        the network, the brokers
"""

import logging
import re
import socket
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.contract import Place
from sidecar.kafka.advertised import Address, Connect, why_out_of_reach
from sidecar.kafka.clients import admin_client
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.observability.health import Cause
from sidecar.observability.logs import masked
from sidecar.settings import Settings

_PROTOCOL = "check security.protocol under kafka: the listener seems to speak another one"
_REMEDIES = {
    KafkaError._AUTHENTICATION: "check sasl.mechanism, sasl.username and sasl.password under kafka",
    KafkaError._SSL: (
        "check ssl.ca.location, ssl.certificate.location and ssl.key.location under kafka, and that the broker's "
        "certificate is valid for the name in bootstrap_servers"
    ),
    KafkaError._RESOLVE: "check the host names in bootstrap_servers, and DNS",
}
"""The more telling first: of the causes of several brokers one is told."""
_ELSE = "check bootstrap_servers and security.protocol: what listens there is no Kafka, or speaks TLS"
_REMEDY = "check bootstrap_servers, the network, and that brokers listen there"
_SILENCE = (
    "check that a firewall or a NetworkPolicy lets connections through to bootstrap_servers, that the brokers are "
    "well, and the security settings under kafka"
)
_ADVERTISED = (
    "bootstrap_servers answer, and send clients on to that address: set advertised.listeners of the brokers to what "
    "can be reached from here, or bootstrap_servers to a listener meant for this network"
)

_LINE = re.compile(
    r"(?:\[thrd:[^]]*\]: )?(?:.*?://)?(?P<broker>[^/\s]+)/\w+: (?P<text>.*?)(?: \(after [^()]*\))?", re.S
)
_NO_KAFKA = re.compile("(?P<told>Invalid response size [0-9]+).*", re.S)
_NO_TLS = re.compile("SSL handshake failed|SSL connection closed by peer")
_WORDS_MAX = 400

T = TypeVar("T")

_librdkafka = logging.getLogger("librdkafka")


class Probe:
    """An admin client that knows why its calls fail. For one thread.

    Args:
        make_admin: takes the settings and librdkafka's options for the two ways of being told.
        connect: opens a connection to an address of a broker.
    """

    def __init__(
        self,
        settings: Settings,
        make_admin: Callable[..., AdminClient] = admin_client,
        connect: Connect = socket.create_connection,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._told: list[KafkaError] = []
        self._closed = ""
        self._cause: Cause | None = None
        self.leaderless: frozenset[Place] = frozenset()
        """Partitions of the schedule topics that no broker led when it last answered a `ping`."""
        self.topic_ids: dict[str, str] = {}
        """The ids of the schedule topics that there were then."""
        self.missing: frozenset[str] = frozenset()
        """Those that there were not, or that this login may not describe."""
        self.closed: frozenset[str] = frozenset()
        """Those that this login may not read."""
        self.admin = make_admin(settings, error_cb=self._told.append, logger=self)

    def ask(self, timeout_s: float) -> Cause | None:
        """None: a broker answers, and can be reached where it says that it is."""
        metadata = self._outcome(lambda: self.admin.list_topics(timeout=timeout_s))
        if metadata is None or isinstance(metadata, Cause):
            return metadata
        addresses = [Address(str(broker.host), int(broker.port)) for broker in metadata.brokers.values()]
        reason = why_out_of_reach(addresses, self._settings.bootstrap_servers, timeout_s, self._connect)
        self._cause = None if reason is None else self._made(reason, _ADVERTISED)
        return self._cause

    def ping(self, timeout_s: float) -> Cause | None:
        """As `ask`, with a question that is cheap for large clusters, too; a refusal also counts as an answer."""
        topics = self._settings.topic_names.schedule_topics(self._settings.levels)
        # Describing a topic never makes a broker create it, as a metadata request may.
        answer = self._outcome(lambda: TopicAdmin(self.admin, self._settings).look(topics, timeout_s, with_rights=True))
        if isinstance(answer, Cause):
            return answer
        self.leaderless = frozenset(answer.leaderless if answer is not None else ())
        self.topic_ids = answer.ids if answer is not None else {}
        self.missing = frozenset(topics).difference(answer.ids) if answer is not None else frozenset()
        self.closed = answer.closed if answer is not None else frozenset()
        return None

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """What librdkafka logs, as confluent-kafka passes it to a logger."""
        if facility != "FAIL":
            _librdkafka.log(level, form, facility, client, text)
        elif "Disconnected" in text:
            self._closed = text

    def _outcome(self, call: Callable[[], T]) -> T | Cause | None:
        """What it returns; None where a broker refuses it, which is an answer, too."""
        answer = error = None
        try:
            answer = call()
        except KafkaException as exception:
            error = exception.args[0]
        newest = self._newest()  # after an answer, too: what was told by then is not why there is none later
        if error is None or error.code() >= 0:  # below 0 it is the client's own
            self._cause = None
            return answer
        if self._cause is not None and self._cause.remedy == _ADVERTISED:
            return self._cause  # the client has gone on to that address meanwhile, and fails there
        self._cause = newest or self._cause or self._made(error.str(), _SILENCE)
        return self._cause

    def _newest(self) -> Cause | None:
        """The cause that fits best what librdkafka has told since this was last called."""
        self.admin.poll(0)
        told, closed = list(self._told), self._closed
        self._told.clear()
        self._closed = ""
        for code, remedy in _REMEDIES.items():
            if error := next((error for error in told if _kind(error) == code), None):
                return self._made(error.str(), remedy)
        for error in told:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                continue
            if _NO_KAFKA.search(error.str()):  # what it advises, to take answers of that size, does not help
                return self._made(_NO_KAFKA.sub(r"\g<told>", error.str()), _ELSE)
            return self._made(error.str(), _PROTOCOL if _NO_TLS.search(error.str()) else _REMEDY)
        return self._made(closed, _PROTOCOL) if closed else None

    def _made(self, told: str, remedy: str) -> Cause:
        found = _LINE.fullmatch(told)
        words = f"{found['broker']}: {found['text']}" if found else told
        return Cause(masked(" ".join(words.split())[:_WORDS_MAX], self._settings.secrets()), remedy)


def _kind(error: KafkaError) -> int:
    """An error's code; a broker that does not accept our certificate says so after the handshake, under another."""
    return KafkaError._SSL if "SSL routines" in error.str() else error.code()
