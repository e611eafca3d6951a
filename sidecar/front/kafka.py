"""The API's own Kafka clients, made when they are first needed, and Kafka's errors as problems."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from connectors.async_producer import AsyncScheduledProducer
from connectors.clients import Clients, KafkaClients
from connectors.dead_letters import DeadLetters
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import RefusedError
from connectors.kafka import UNPOLLED, common_config
from connectors.kafka_errors import MISSING, REFUSALS, TOO_LARGE
from sidecar.dispatch.destinations import not_allowed
from sidecar.front.at_once import (
    AtOnce,
    Done,
    KeyReusedError,
    NothingDoneError,
    NotKnownError,
    RefusedRecordError,
    TransactionalScheduler,
    Work,
)
from sidecar.front.key_ledger import KeyLedger
from sidecar.settings import Settings
from sidecar.web.problems import Kind, ProblemError

ACKNOWLEDGED_WITHIN_S = 5.0
"""How long a request waits for Kafka."""

_TOPIC_KNOWN_WITHIN_MS = 3_000
"""How long brokers may take to tell of a topic that has just been made. Less than a record has for its acknowledgement:
that there is no such topic is certain, and no silence of Kafka's."""

RECORD_MAX_BYTES = 16_000_000
"""How large a record may be is the topic's business; this is more than any of them takes."""

T = TypeVar("T")


class FrontKafka:
    """Producers and dead letters for the settings.

    Args:
        clients: in tests, those of an in-memory Kafka.
    """

    def __init__(self, settings: Settings, clients: Clients | None = None) -> None:
        self._settings = settings
        self._clients: Clients = clients or KafkaClients()
        self._names = settings.topic_names
        self._producer: AsyncScheduledProducer | None = None
        self._making = asyncio.Lock()
        self._dead_letters: DeadLetters | None = None
        self._dead_letters_lock = threading.Lock()
        self._at_once = AtOnce(self._make_scheduler, self._make_ledger, self._clients.clock)

    @property
    def has_transactions(self) -> bool:
        return self._settings.guarantee == "exactly_once"

    async def producer(self) -> AsyncScheduledProducer:
        """For records one by one."""
        async with self._making:
            if self._producer is None:
                producer = AsyncScheduledProducer(
                    {**self._config("http"), "message.timeout.ms": int(ACKNOWLEDGED_WITHIN_S * 1000)},
                    names=self._names,
                    levels=self._settings.levels,
                    clients=self._clients,
                )
                self._producer = await producer.__aenter__()
            return self._producer

    async def at_once(self, work: Work) -> Done:
        """Carry out a request, all of it or nothing. Raises ProblemError."""
        if not self.has_transactions:
            raise ProblemError(
                Kind.NOT_OFFERED,
                "lists and Idempotency-Key need Kafka's transactions, which this sidecar does without "
                "(guarantee: at_least_once); send messages one by one, without the key",
            )
        try:
            return await asyncio.shield(asyncio.wrap_future(self._at_once.submit(work)))
        except NothingDoneError as error:
            raise ProblemError(Kind.UNAVAILABLE, f"Kafka does not answer, nothing was done: {error}") from None
        except NotKnownError as error:
            again = (
                "repeat the request with the same Idempotency-Key"
                if work.key
                else "it may or may not have been done; with an Idempotency-Key a repeated request is harmless"
            )
            raise ProblemError(Kind.UNKNOWN_OUTCOME, f"{error}; {again}") from None
        except KeyReusedError:
            raise ProblemError(
                Kind.KEY_REUSED, "this Idempotency-Key has come with another body before; take a new key"
            ) from None
        except RefusedError as error:
            raise ProblemError(
                Kind.REFUSED,
                f"Idempotency-Key: Kafka refuses the topic that remembers the keys: {error}; nothing was done. "
                "Create it (one partition), let the sidecar do so, or send without the key",
            ) from None
        except RefusedRecordError as error:
            where = "" if len(work.records) == 1 else f"{error.number}"
            if error.error is None:
                raise ProblemError.of_fields([(where, str(error))]) from None
            raise problem_of(error.error, where) from None

    def dead_letters(self) -> DeadLetters:
        """Blocks; raises DeadLettersError."""
        with self._dead_letters_lock:
            if self._dead_letters is None:
                config = {"bootstrap.servers": self._settings.bootstrap_servers, **self._settings.kafka}
                # What is redriven for somebody is written in the sidecar's own name: its rules hold for it.
                self._dead_letters = DeadLetters(
                    config,
                    names=self._names,
                    clients=self._clients,
                    why_not=lambda topic: not_allowed(self._names, self._settings, topic),
                    replication_factor=self._settings.replication_factor,
                    retention_ms=self._settings.dead_letter_retention,
                )
            return self._dead_letters

    def settle_earlier_life(self) -> None:
        """End a transaction that a process before this one has left open: readers of its topics wait for it."""
        if self.has_transactions:
            self._at_once.submit(Work(()))

    # ------------------------------------------------------------------------------------------------------------------

    def _config(self, name: str) -> dict[str, Any]:
        settings = self._settings
        common = common_config(settings.bootstrap_servers, settings.kafka, f"{settings.group_id}-{name}")
        return {
            "topic.metadata.propagation.max.ms": _TOPIC_KNOWN_WITHIN_MS,
            **common,
            "message.max.bytes": RECORD_MAX_BYTES,
        }

    def _make_scheduler(self) -> TransactionalScheduler:
        settings = self._settings
        return TransactionalScheduler(
            {**UNPOLLED, **self._config("http-transactions"), "log_level": 0},  # nobody polls it between two requests
            f"{settings.group_id}-{settings.identity}-http",
            self._names,
            settings.levels,
            self._clients,
        )

    def _make_ledger(self) -> KeyLedger:
        config = {"bootstrap.servers": self._settings.bootstrap_servers, **self._settings.kafka}
        cluster = Cluster(config, self._clients, self._settings.replication_factor)
        return KeyLedger(cluster, self._names.idempotency)


async def acknowledged(begun: Awaitable[T], *, id: str = "") -> T:  # noqa: A002
    """Kafka's answer to one record. Raises ProblemError.

    Args:
        id: the message's, told where it is not known what became of it.
    """
    try:
        async with asyncio.timeout(2 * ACKNOWLEDGED_WITHIN_S):
            return await begun
    except TimeoutError:
        error = KafkaError(KafkaError._MSG_TIMED_OUT)
    except KafkaException as exception:
        error = exception.args[0]
    if error.code() in REFUSALS:
        raise problem_of(error)
    more: dict[str, Any] = {"id": id} if id else {}
    raise ProblemError(
        Kind.UNKNOWN_OUTCOME,
        f"Kafka has not acknowledged the record within {ACKNOWLEDGED_WITHIN_S:.0f} s ({error.str()}), so it may or may "
        "not be there; with an Idempotency-Key a repeated request is harmless",
        **more,
    )


def problem_of(error: KafkaError, field: str = "") -> ProblemError:
    """What Kafka has against a record."""
    where = f"item {field}: " if field else ""
    if error.code() in TOO_LARGE:
        detail = f"{where}the record is larger than its schedule topic takes; send less, or raise max.message.bytes"
        return ProblemError(Kind.TOO_LARGE, detail)
    if error.code() in MISSING:
        detail = f"{where}there is no such schedule topic or partition ({error.str()}); run 'timewheel topics check'"
        return ProblemError(Kind.REFUSED, detail)
    return ProblemError(Kind.REFUSED, f"{where}Kafka refuses the record: {error.str()}")
