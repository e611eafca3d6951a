"""Records of several requests into Kafka in one transaction: of each request all or none, and each key once.

A thread takes what has come meanwhile and, for as long as nothing goes wrong,

1. catches up with the ledger of Idempotency-Keys, and answers what has been done before from it; of a key that has come
   twice meanwhile (who sent it first has hung up), the second waits for the first. What has no key goes before;
2. writes the records, waits until Kafka has all of them, and writes the ledger's entries, which tell where they are;
3. commits, and tells the receipts.

A record that Kafka refuses fails its own request: the transaction is aborted, and each request goes alone. So does one
that its partition does not take in time: the requests of the others are written again without it, and as long as its
topic is suspected, nobody waits for it again for so long. When Kafka does not answer, nothing is done, and that is
certain until the commit is asked for, but for what an earlier request with the same key has done. After that it is not
known, and the next transaction begins with new clients: making them ends the one that is left, for good or for ill, and
the ledger tells which.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from connectors.clients import Clients
from connectors.clock import Clock, SystemClock
from connectors.contract import DelayLevels, Headers, TopicNames
from connectors.dead_letters.errors import NotAnsweredError, RefusedError
from connectors.in_turns import flush_in_turns
from connectors.kafka_errors import REFUSALS
from connectors.pending_receipt import PendingReceipt, Plan
from connectors.producer import ScheduledProducer
from connectors.schedule_record import ScheduleError
from connectors.until_answered import until_answered
from sidecar.errors import to_keep
from sidecar.front.key_ledger import Entry, KeyLedger, Written

TRANSACTION_TIMEOUT_MS = 10_000
ANSWER_WITHIN_S = 5.0
"""How long Kafka has for each of: making clients, taking the records, committing."""

SUSPECT_ANSWERS_WITHIN_S = 0.5
SUSPECTED_FOR_MS = 60_000
"""How long a topic that has not taken a record is given that little time."""

REQUESTS_MAX = 64
"""In one transaction."""

ATTEMPTS = 3
"""After a refusal the client's next transaction fails, too: its sequence has a gap, which that abort mends."""

_SILENCE = frozenset({KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT})

log = structlog.get_logger("timewheel.web")


class NothingDoneError(Exception):
    """Kafka does not answer, or refuses the transaction; nothing has been done."""


class NotKnownError(Exception):
    """Kafka has not answered the commit, which is settled with the next request; or, where the request has a key, does
    not even tell whether that was carried out before."""


class KeyReusedError(Exception):
    """The key has come with another request."""


class RefusedRecordError(Exception):
    """Kafka refuses a record, or it cannot be written at all.

    Args:
        number: of the record in its request, from 0.
        error: of Kafka's; None: the words say it.
    """

    def __init__(self, number: int, reason: str, error: KafkaError | None = None) -> None:
        super().__init__(reason)
        self.number = number
        self.error = error


class Done(NamedTuple):
    """A request that has been carried out: now, or when its key came before."""

    written: list[Written]
    is_replay: bool


class Key(NamedTuple):
    """An Idempotency-Key; see `Entry`."""

    name: str
    fingerprint: str


Begin = Callable[["TransactionalScheduler"], PendingReceipt]
"""Writes one record."""


@dataclass(eq=False)
class Work:
    """A request: its records, and who waits for it."""

    records: Sequence[Begin]
    key: Key | None = None
    done: Future[Done] = field(default_factory=Future)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(to_keep(error))


class Begun(NamedTuple):
    """A record that is on its way, by its number in its request."""

    work: Work
    number: int
    pending: PendingReceipt

    @property
    def is_silent(self) -> bool:
        """Whether Kafka has not taken it in time."""
        error = self.pending.error
        return not self.pending.is_answered or (error is not None and error.code() in _SILENCE)


class TransactionalScheduler(ScheduledProducer):
    """Schedules records within transactions."""

    def __init__(
        self, config: Mapping[str, Any], transactional_id: str, names: TopicNames, levels: DelayLevels, clients: Clients
    ) -> None:
        self._transactional_id = transactional_id
        super().__init__(config, names=names, levels=levels, clients=clients)
        self.client = self._producer

    def _client_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **super()._client_options(config),
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }

    def _make_client(self, options: Mapping[str, Any]) -> Any:
        """A producer that is not replaced when it fails: its transaction would be lost with it."""
        return self._clients.producer(options)

    def _find_client_in_use(self) -> Any:
        return self._producer

    def flush(self, timeout_s: float = ANSWER_WITHIN_S) -> int:
        """Raises KafkaException where the producer is of no more use."""
        return flush_in_turns(super().flush, timeout_s)

    def begin_record(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> PendingReceipt:
        """Write a record that is none to be scheduled."""
        pending = PendingReceipt(self, Plan(topic, "", (), 0, True, is_cancellable=False), b"")
        self._produce(topic, value, key, -1, headers, pending)
        return pending


class AtOnce:
    """The thread and its queue.

    Args:
        make_scheduler: makes the clients, also after they are lost.
        make_ledger: the ledger, with nothing read yet.
    """

    def __init__(
        self,
        make_scheduler: Callable[[], TransactionalScheduler],
        make_ledger: Callable[[], KeyLedger],
        clock: Clock,
        now_ms: Callable[[], int] = lambda: SystemClock().now_ms(),
    ) -> None:
        self._make_scheduler = make_scheduler
        self._make_ledger = make_ledger
        self._clock = clock
        self._now_ms = now_ms
        self._scheduler: TransactionalScheduler | None = None
        self._ledger: KeyLedger | None = None
        self._suspected_until_ms: dict[str, float] = {}
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> Future[Done]:
        """Carry it out; the future has what was done, or one of this module's errors."""
        self._queue.put(work)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="at-once", daemon=True)
                self._thread.start()
        return work.done

    def _serve(self) -> None:
        while True:
            works = [self._queue.get()]
            with suppress(queue.Empty):
                while len(works) < REQUESTS_MAX:
                    works.append(self._queue.get_nowait())
            try:
                self.settle(works)
            except Exception as error:  # the thread goes on: others wait
                log.error(
                    "requests failed",
                    operator_action="report it with this traceback; delivery goes on",
                    exc_info=True,
                )
                self._forget()
                for work in works:
                    work.fail(error)

    def settle(self, works: Sequence[Work]) -> None:
        """Carry out what has come, and tell everybody."""
        unkeyed = [work for work in works if not work.key]
        keyed, repeats = _first_of_each_key([work for work in works if work.key])
        is_ledger_read = False
        try:
            scheduler = self._open()
            if unkeyed:  # before those that wait for the ledger, which another's open transaction may hold up
                self._write(scheduler, unkeyed)
            left = self._not_done_before(keyed)
            is_ledger_read = True
            if left:
                self._write(self._open(), left)
        except NothingDoneError as error:
            not_told = NotKnownError(f"Kafka does not tell whether a request with this key was carried out: {error}")
            for work in works:
                work.fail(not_told if work.key and not is_ledger_read else error)
        except NotKnownError as error:
            for work in works:
                work.fail(error)
        else:
            if repeats:
                self.settle(repeats)

    def _open(self) -> TransactionalScheduler:
        """Clients, with nothing left open that an earlier life has begun."""
        if self._scheduler is None:
            try:
                scheduler = self._make_scheduler()
                until_answered(scheduler.client.init_transactions, ANSWER_WITHIN_S, self._clock)
            except KafkaException as error:
                failure = NothingDoneError(_words(error))
            else:
                self._scheduler = scheduler
                return scheduler
            raise failure  # not while Kafka's error holds the clients that have failed
        return self._scheduler

    def _forget(self) -> None:
        """New clients for the next; what the ledger holds by then, it tells whoever catches up with it."""
        self._scheduler = None

    def _not_done_before(self, works: Sequence[Work]) -> list[Work]:
        """Of these, each of which has a key, those that are left to be done; the others are answered by the ledger."""
        if not works:
            return []
        ledger = self._ledger = self._ledger or self._make_ledger()
        try:
            ledger.catch_up(self._now_ms())
        except NotAnsweredError as error:
            raise NothingDoneError(str(error)) from error
        except RefusedError as error:
            for work in works:
                work.fail(error)
            return []
        left = []
        for work in works:
            assert work.key
            entry = ledger.find(work.key.name, self._now_ms())
            if entry is None:
                left.append(work)
            elif entry.fingerprint == work.key.fingerprint:
                work.done.set_result(Done(entry.written, is_replay=True))
            else:
                work.fail(KeyReusedError())
        return left

    # --- a transaction ------------------------------------------------------------------------------------------------

    def _write(self, scheduler: TransactionalScheduler, works: Sequence[Work], attempts: int = ATTEMPTS) -> None:
        """Write all in one transaction; where a record is refused, each request in a transaction of its own."""
        begun: list[Begun] = []
        try:
            scheduler.client.begin_transaction()
            for work in works:
                for number, begin in enumerate(work.records):
                    begun.append(Begun(work, number, _begin(scheduler, number, begin)))
            self._await(scheduler, [one.pending for one in begun])
            written = iter([_written(one.pending) for one in begun])
            answers = [(work, [next(written) for _ in work.records]) for work in works]
            entries = [Entry(*work.key, told, self._now_ms()) for work, told in answers if work.key]
            last_offset = self._note(scheduler, entries)
        except (RefusedRecordError, KafkaException) as exception:
            error = exception
        else:
            self._commit(scheduler)
            if entries and self._ledger is not None:
                self._ledger.committed(entries, last_offset)
            for work, told in answers:
                work.done.set_result(Done(told, is_replay=False))
            return
        # Not while the exception is handled: another one of confluent-kafka's would never be freed then, and hold all
        # of the requests (github.com/confluentinc/confluent-kafka-python/issues/1266, seen with 2.16.1).
        self._write_again(scheduler, works, begun, error, attempts)

    def _write_again(
        self,
        scheduler: TransactionalScheduler,
        works: Sequence[Work],
        begun: Sequence[Begun],
        error: RefusedRecordError | KafkaException,
        attempts: int,
    ) -> None:
        """After a transaction that has failed: abort it, and write what can be written."""
        silent = [one for one in begun if one.is_silent]  # the abort answers everything
        self._abort(scheduler)
        # Once a record is refused, the client takes no more; which one it was stands in its report.
        refused = error if isinstance(error, RefusedRecordError) else _refused(begun)
        if refused is None:
            code = error.args[0].code()
            if attempts == 1 or code in _SILENCE:
                others = self._others(works, silent, error.args[0].str())
                if others:
                    self._write(scheduler, others)
            else:
                self._write(scheduler, works, attempts - 1)
        elif len(works) == 1:
            works[0].fail(refused)
        else:
            for work in works:
                self._write(scheduler, [work])

    def _others(self, works: Sequence[Work], silent: Sequence[Begun], reason: str) -> list[Work]:
        """The requests whose records Kafka has taken, where it has not taken those of some; these have failed.

        Raises:
            NothingDoneError: it is no record's fault.
        """
        if not silent:
            raise NothingDoneError(reason)
        until_ms = self._clock.monotonic_ms() + SUSPECTED_FOR_MS
        for work, _, pending in silent:
            self._suspected_until_ms[pending.schedule_topic] = until_ms
            work.fail(NothingDoneError(f"'{pending.schedule_topic}' does not take the record ({reason})"))
        failed = {one.work for one in silent}
        return [work for work in works if work not in failed]

    def _await(self, scheduler: TransactionalScheduler, pendings: Sequence[PendingReceipt]) -> None:
        now_ms = self._clock.monotonic_ms()
        suspects = {topic for topic, until_ms in self._suspected_until_ms.items() if now_ms < until_ms}
        if any(pending.schedule_topic in suspects for pending in pendings):
            scheduler.flush(SUSPECT_ANSWERS_WITHIN_S)
        if any(not pending.is_answered and pending.schedule_topic not in suspects for pending in pendings):
            scheduler.flush(ANSWER_WITHIN_S)
        for pending in pendings:
            if pending.error is not None:
                raise KafkaException(pending.error)
            if not pending.is_answered:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _note(self, scheduler: TransactionalScheduler, entries: Sequence[Entry]) -> int:
        """Write the ledger's entries; the offset of the last."""
        if not entries:
            return -1
        assert self._ledger is not None, "it has told that these are new"
        told: list[tuple[KafkaError | None, int]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            told.append((error, message.offset() or 0))

        for entry in entries:
            scheduler.client.produce(
                self._ledger.topic, msgspec.json.encode(entry), entry.key, 0, on_delivery=on_delivery
            )
        scheduler.flush(ANSWER_WITHIN_S)
        errors = [error for error, _ in told if error is not None]
        if errors or len(told) < len(entries):
            self._ledger.reopen()
            raise KafkaException(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))
        return max(offset for _, offset in told)

    def _abort(self, scheduler: TransactionalScheduler) -> None:
        """Nothing of it is to be seen; where even that is not answered, it never will be, and the clients are lost."""
        try:
            until_answered(scheduler.client.abort_transaction, ANSWER_WITHIN_S, self._clock)
            scheduler.poll()  # the reports are complete only now
        except KafkaException:
            self._forget()
            raise NothingDoneError("Kafka does not answer") from None

    def _commit(self, scheduler: TransactionalScheduler) -> None:
        try:
            until_answered(scheduler.client.commit_transaction, ANSWER_WITHIN_S, self._clock)
        except KafkaException as exception:
            failure = exception
        else:
            return
        error: KafkaError = failure.args[0]
        if error.txn_requires_abort():
            self._abort(scheduler)
            raise NothingDoneError(error.str()) from failure
        self._forget()
        raise NotKnownError(f"Kafka has not answered the commit: {error.str()}") from failure


def _first_of_each_key(works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
    """Of requests that have keys, those that may share a transaction, and those with a key of one of them."""
    names, firsts, repeats = set[str](), list[Work](), list[Work]()
    for work in works:
        assert work.key
        (repeats if work.key.name in names else firsts).append(work)
        names.add(work.key.name)
    return firsts, repeats


def _begin(scheduler: TransactionalScheduler, number: int, begin: Begin) -> PendingReceipt:
    try:
        pending = begin(scheduler)
    except ScheduleError as error:
        raise RefusedRecordError(number, str(error)) from error
    except KafkaException as exception:
        error_: KafkaError = exception.args[0]
        if error_.code() in REFUSALS:
            raise RefusedRecordError(number, error_.str(), error_) from exception
        raise
    scheduler.poll()
    return pending


def _refused(begun: Sequence[Begun]) -> RefusedRecordError | None:
    """The one that Kafka has refused: of a batch, which is refused whole, the largest."""
    refused = [
        (number, one.error, one.message) for _, number, one in begun if one.error and one.error.code() in REFUSALS
    ]
    if not refused:
        return None
    number, error, _ = max(refused, key=lambda found: len(found[2].value() or b"") if found[2] else 0)
    return RefusedRecordError(number, error.str(), error)


def _written(pending: PendingReceipt) -> Written:
    receipt = pending.receipt()
    return Written(receipt.schedule_topic, receipt.partition, receipt.offset, receipt.deliver_ms)


def _words(error: KafkaException) -> str:
    return str(error.args[0].str())
