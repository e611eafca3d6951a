"""``/api/v1/messages``: schedule, take back, give another time.

One message goes by itself, as fast as Kafka takes it. A list, and whatever comes with an Idempotency-Key, goes in a
transaction (`at_once`): all or nothing, each key once.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from connectors.contract import is_legal_topic_name
from connectors.header_names import UNIQ_KEY
from connectors.pending_receipt import PendingReceipt
from connectors.receipt import Receipt, ReceiptError
from connectors.schedule_record import RecordGoneError, ScheduleError, carried, check_cancellable
from connectors.times import epoch_ms
from sidecar.dispatch.destinations import no_destination
from sidecar.front.at_once import Begin, Key, TransactionalScheduler, Work
from sidecar.front.idempotency import PARAMETER, REPLAYED, KeysInProgress, key_of
from sidecar.front.kafka import ACKNOWLEDGED_WITHIN_S, FrontKafka, acknowledged
from sidecar.front.key_ledger import Written
from sidecar.schedule_request import DelayMs, DeliverAt, ScheduleRequest, field_faults, too_far
from sidecar.settings import Settings
from sidecar.web.problems import Kind, ProblemError, described

MESSAGES_MAX = 1_000
"""In one request."""
KEY_MAX_BYTES = 1_024
"""For a record's key and for its id: both stand in its receipt, which stands in a path."""
RESCHEDULES_AT_ONCE = 8
"""Each of them has a consumer of its own, to read the scheduled record."""

_MANY = TypeAdapter(list[ScheduleRequest])
_ONE_EXAMPLE = {"topic": "orders", "key": "17", "value": "order 17 is unpaid", "delay": "1h30m"}
_MANY_EXAMPLE = [_ONE_EXAMPLE, {"topic": "orders", "value_json": {"order": 18}, "deliver_at": "2030-01-31T09:00:00Z"}]

ReceiptWord = Annotated[
    str, Path(description="The word that scheduling answered with.", min_length=1, max_length=12_000)
]


class ReceiptAnswer(BaseModel):
    """Where a message waits, and how it is called."""

    receipt: str = Field(description="One opaque word, to cancel and reschedule with.")
    id: str = Field(description="The message's UNIQ_KEY.")
    topic: str = Field(description="Where it will be delivered.")
    partition: int = Field(description="Of the schedule topic.")
    deliver_ms: int = Field(description="When it is due, ms since the epoch; 0 where the level's delay is not known.")
    cancellable: bool = Field(True, description="False for a message on a level topic.")


class ReceiptsAnswer(BaseModel):
    """In the order of the request's list."""

    receipts: list[ReceiptAnswer]


class CancelAnswer(BaseModel):
    """Where the cancel stands; whether it came in time is decided by the sidecar."""

    id: str
    partition: int
    offset: int
    outcome: str = Field(description="Where the outcome will be told.", examples=["/api/v1/cancels/0/17"])


class RescheduleRequest(BaseModel):
    """Another time for a message."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    deliver_at: DeliverAt = Field(None, description="Deliver at this time, ISO 8601 with a zone.")
    delay_ms: DelayMs = Field(None, alias="delay", description="Deliver after this long.")

    @model_validator(mode="after")
    def _check_when(self) -> Self:
        if (self.deliver_at is None) == (self.delay_ms is None):
            raise ValueError("say when with exactly one of deliver_at and delay")
        return self


def messages_router(settings: Settings, kafka: FrontKafka) -> APIRouter:
    """Scheduling through this sidecar's topics."""
    router = APIRouter()
    keys = KeysInProgress()
    rescheduling = asyncio.Semaphore(RESCHEDULES_AT_ONCE)
    check = _Checks(settings)

    @router.post(
        "/api/v1/messages",
        status_code=202,
        response_model=ReceiptAnswer | ReceiptsAnswer,
        summary="Schedule one message, or a list of them, all or none",
        responses=described(Kind.IN_PROGRESS, Kind.INVALID, Kind.KEY_REUSED, Kind.REFUSED, Kind.UNKNOWN_OUTCOME),
        openapi_extra={"parameters": [PARAMETER], "requestBody": _BODY},
    )
    async def schedule(request: Request, response: Response) -> Any:
        body = await request.body()
        wanted, is_list = _parse(body)
        check.all(wanted, is_list=is_list)
        key = key_of(request, body)
        if key is None and not is_list:
            return await _send_one(kafka, wanted[0])
        ids = _ids(wanted, key)
        work = Work([_begin(one, id_) for one, id_ in zip(wanted, ids, strict=True)], key)
        with keys.hold(work):
            done = await kafka.at_once(work)
        if done.is_replay:
            response.headers[REPLAYED] = "true"
        receipts = [
            _receipt(settings, one, id_, written).to_dict()
            for one, id_, written in zip(wanted, ids, done.written, strict=True)
        ]
        return {"receipts": receipts} if is_list else receipts[0]

    @router.delete(
        "/api/v1/messages/{receipt}",
        status_code=202,
        summary="Take a message back",
        responses=described(Kind.NOT_CANCELLABLE, Kind.INVALID, Kind.REFUSED, Kind.UNKNOWN_OUTCOME),
    )
    async def cancel(receipt: ReceiptWord) -> CancelAnswer:
        known = check.receipt(receipt)
        producer = await kafka.producer()
        partition, offset = await acknowledged(producer.cancel(known), id=known.id)
        outcome = f"/api/v1/cancels/{partition}/{offset}"
        return CancelAnswer(id=known.id, partition=partition, offset=offset, outcome=outcome)

    @router.patch(
        "/api/v1/messages/{receipt}",
        status_code=202,
        summary="Give a message another time; the answer is its new receipt",
        responses=described(Kind.NOT_CANCELLABLE, Kind.GONE, Kind.INVALID, Kind.REFUSED, Kind.UNKNOWN_OUTCOME),
        openapi_extra={"requestBody": _json_body(RescheduleRequest.model_json_schema(), {"later": {"delay": "2h"}})},
    )
    async def reschedule(receipt: ReceiptWord, request: Request) -> ReceiptAnswer:
        known = check.receipt(receipt)
        try:
            wanted = RescheduleRequest.model_validate_json(await request.body())
        except ValidationError as error:
            raise ProblemError.of_fields(field_faults(error.errors(), RescheduleRequest)) from None
        check.time(wanted, "")
        producer = await kafka.producer()
        delay = None if wanted.delay_ms is None else timedelta(milliseconds=wanted.delay_ms)
        async with rescheduling:
            try:
                begun = producer.reschedule(
                    known, deliver_at=wanted.deliver_at, delay=delay, timeout_s=ACKNOWLEDGED_WITHIN_S
                )
                again = await acknowledged(begun, id=known.id)
            except RecordGoneError as error:
                raise ProblemError(Kind.GONE, str(error)) from None
        return ReceiptAnswer.model_validate(again.to_dict())

    return router


async def _send_one(kafka: FrontKafka, wanted: ScheduleRequest) -> dict[str, object]:
    producer = await kafka.producer()
    id_ = _given_id(wanted) or uuid.uuid4().hex
    begun: Awaitable[Receipt] = producer.send(
        wanted.topic,
        wanted.payload,
        key=wanted.key_bytes,
        headers=_headers(wanted, id_),
        deliver_at=wanted.deliver_at,
        delay=None if wanted.delay_ms is None else timedelta(milliseconds=wanted.delay_ms),
        level=wanted.level,
    )
    return (await acknowledged(begun, id=id_)).to_dict()


def _parse(body: bytes) -> tuple[Sequence[ScheduleRequest], bool]:
    """The messages of a body, and whether it is a list."""
    is_list = body.lstrip(b" \t\r\n").startswith(b"[")
    try:
        return (_MANY.validate_json(body) if is_list else [ScheduleRequest.model_validate_json(body)]), is_list
    except ValidationError as error:
        raise ProblemError.of_fields(field_faults(error.errors(), ScheduleRequest)) from None


def _begin(wanted: ScheduleRequest, id_: str) -> Begin:
    def begin(scheduler: TransactionalScheduler) -> PendingReceipt:
        return scheduler.begin_send(
            wanted.topic,
            wanted.payload,
            key=wanted.key_bytes,
            headers=_headers(wanted, id_),
            deliver_at=wanted.deliver_at,
            delay_ms=wanted.delay_ms,
            level=wanted.level,
        )

    return begin


def _given_id(wanted: ScheduleRequest) -> str | None:
    """The last ``UNIQ_KEY`` among the headers."""
    given = [value for name, value in wanted.headers if name == UNIQ_KEY]
    if not given or not given[-1]:
        return None
    last = given[-1]
    return last.decode(errors="backslashreplace") if isinstance(last, bytes) else last


def _headers(wanted: ScheduleRequest, id_: str) -> list[tuple[str, str | bytes | None]]:
    return wanted.headers if _given_id(wanted) else [*wanted.headers, (UNIQ_KEY, id_)]


def _ids(wanted: Sequence[ScheduleRequest], key: Key | None) -> list[str]:
    """With an Idempotency-Key they come of it: what it has scheduled can be told again."""
    stem = uuid.uuid4().hex if key is None else key.name
    return [_given_id(one) or f"{stem}-{number}" for number, one in enumerate(wanted)]


def _receipt(settings: Settings, wanted: ScheduleRequest, id_: str, written: Written) -> Receipt:
    is_cancellable = wanted.level is None
    return Receipt(
        schedule_topic=written.topic,
        partition=written.partition,
        offset=written.offset,
        id=id_,
        topic=settings.topic_names.physical(wanted.topic),
        deliver_ms=written.deliver_ms,
        key=wanted.key_bytes if is_cancellable else None,
        cancellable=is_cancellable,
    )


class _Checks:
    """What can be told before Kafka is asked. Raises ProblemError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = settings.topic_names

    def all(self, wanted: Sequence[ScheduleRequest], *, is_list: bool) -> None:
        """Every message, and that there are neither none nor too many."""
        if not 1 <= len(wanted) <= MESSAGES_MAX:
            raise ProblemError.of_fields([("", f"the list has {len(wanted)} messages; send 1 to {MESSAGES_MAX}")])
        faults: list[tuple[str, str]] = []
        for number, one in enumerate(wanted):
            where = f"{number}." if is_list else ""
            try:
                self._one(one, where)
            except ProblemError as problem:
                faults += [(fault["field"], fault["message"]) for fault in problem.more["errors"]]
        if faults:
            raise ProblemError.of_fields(faults)

    def _one(self, wanted: ScheduleRequest, where: str) -> None:
        fault = self._topic_fault(self._names.physical(wanted.topic))
        faults = [] if fault is None else [(f"{where}topic", fault)]
        if len(wanted.key_bytes or b"") > KEY_MAX_BYTES:
            faults.append((f"{where}key", f"has more than {KEY_MAX_BYTES} bytes; send it in the value"))
        if len((_given_id(wanted) or "").encode()) > KEY_MAX_BYTES:
            faults.append((f"{where}headers", f"UNIQ_KEY has more than {KEY_MAX_BYTES} bytes; take a shorter id"))
        try:
            carried(wanted.headers)
        except ScheduleError as error:
            faults.append((f"{where}headers", str(error)))
        if faults:
            raise ProblemError.of_fields(faults)
        self.time(wanted, where)

    def _topic_fault(self, topic: str) -> str | None:
        if not is_legal_topic_name(topic):
            return "is not a valid topic name (at most 249 letters, digits, '.', '_' and '-')"
        return no_destination(self._names, self._settings, topic)

    def time(self, wanted: ScheduleRequest | RescheduleRequest, where: str) -> None:
        """A delay that the sidecar would reject."""
        if wanted.deliver_at is not None and epoch_ms(wanted.deliver_at) < 0:
            raise ProblemError.of_fields([(f"{where}deliver_at", "lies before 1970, where no clock of Kafka's begins")])
        name, delay_ms = "delay" if wanted.deliver_at is None else "deliver_at", wanted.delay_ms
        if isinstance(wanted, ScheduleRequest) and wanted.level is not None:
            name, delay_ms = "level", self._settings.levels.delay_ms(wanted.level)
        if told := too_far(self._settings.max_delay, wanted.deliver_at, delay_ms):
            raise ProblemError.of_fields([(f"{where}{name}", f"{told} of this sidecar")])

    def receipt(self, word: str) -> Receipt:
        """A receipt of a message on this sidecar's wheel."""
        try:
            receipt = Receipt.decode(word)
            check_cancellable(receipt)
            known = receipt.id.encode(), receipt.topic.encode()
        except (ReceiptError, UnicodeEncodeError) as error:
            raise ProblemError.of_fields([("receipt", str(error))]) from None
        except ScheduleError as error:
            raise ProblemError(Kind.NOT_CANCELLABLE, str(error)) from None
        is_possible = 0 <= receipt.partition < 2**31 and 0 <= receipt.offset < 2**63 and 0 <= receipt.deliver_ms < 2**63
        if receipt.schedule_topic != self._names.wheel:
            told = f"is of {receipt.schedule_topic[:249]}, and this sidecar works on {self._names.wheel}"
            raise ProblemError.of_fields([("receipt", told)])
        if not is_possible or not all(known):
            told = 'names a message that there cannot be; pass the value of "receipt" as it was answered'
            raise ProblemError.of_fields([("receipt", told)])
        return receipt


def _json_body(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}


_ONE_SCHEMA = ScheduleRequest.model_json_schema()
_BODY = _json_body(
    {"anyOf": [_ONE_SCHEMA, {"type": "array", "items": _ONE_SCHEMA, "minItems": 1, "maxItems": MESSAGES_MAX}]},
    {"one": _ONE_EXAMPLE, "many": _MANY_EXAMPLE},
)
