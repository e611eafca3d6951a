"""``POST /api/v1/send-back``: a consumer has failed a message, and asks for another attempt.

What it writes is what `connectors.RetryingConsumer` writes: the failed record, and in its headers who failed and how
often. Without a `group`, the headers are those of a record of the send-back topic, and say all of that themselves. It
goes as one transaction where the sidecar has any, and then an Idempotency-Key makes a repeated request harmless: no
attempt is lost or counted twice.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, ValidationError

from connectors.contract import ErrorCode, Headers, is_legal_topic_name
from connectors.header_names import CONSUMER_GROUP, DELAY, MAX_RECONSUME_TIMES, RECONSUME_TIME, RETRY_TOPIC
from connectors.pending_receipt import PendingReceipt
from sidecar.front.at_once import TransactionalScheduler, Work
from sidecar.front.idempotency import PARAMETER, REPLAYED, KeysInProgress, key_of
from sidecar.front.kafka import FrontKafka, acknowledged
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.records import Rejection
from sidecar.schedule_request import MessageBody, field_faults
from sidecar.settings import Settings
from sidecar.web.problems import Kind, ProblemError, described

_NUMBERS = {
    "delay_level": DELAY,
    "reconsume_times": RECONSUME_TIME,
    "max_reconsume_times": MAX_RECONSUME_TIMES,
}
_EXAMPLE = {"group": "billing", "topic": "orders", "key": "17", "value": "order 17"}


class SendBackRequest(MessageBody):
    """The message as the consumer saw it, and who failed."""

    group: str | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="The consumer group that is to have it again; may be left out where its headers have a "
        "CONSUMER_GROUP, and then a DELAY among them counts, too.",
    )
    topic: str | None = Field(
        None, description="Where it was read from; may be left out where its headers have a RETRY_TOPIC."
    )
    delay_level: int | None = Field(
        None,
        ge=-(2**31),
        le=2**31 - 1,
        description="When: a delay level; below 0: never, it is dead; none or 0: ever later.",
    )
    reconsume_times: int | None = Field(
        None, ge=0, le=2**31 - 2, description="How often it has been tried again; none: as its headers say."
    )
    max_reconsume_times: int | None = Field(
        None, ge=0, le=2**31 - 2, description="After how many attempts it is dead; none: as its headers say, or 16."
    )


class SendBackAnswer(BaseModel):
    """Where the record stands on the send-back topic."""

    topic: str
    partition: int
    offset: int


def send_back_router(settings: Settings, kafka: FrontKafka) -> APIRouter:
    """Writes to this sidecar's send-back topic."""
    router = APIRouter()
    keys = KeysInProgress()

    @router.post(
        "/api/v1/send-back",
        status_code=202,
        response_model=SendBackAnswer,
        summary="Ask for another attempt at a message that a consumer has failed",
        responses=described(Kind.IN_PROGRESS, Kind.INVALID, Kind.KEY_REUSED, Kind.REFUSED, Kind.UNKNOWN_OUTCOME),
        openapi_extra={
            "parameters": [PARAMETER],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": SendBackRequest.model_json_schema(),
                        "examples": {"failed": {"value": _EXAMPLE}},
                    }
                },
            },
        },
    )
    async def send_back(request: Request, response: Response) -> Any:
        body = await request.body()
        try:
            wanted = SendBackRequest.model_validate_json(body)
        except ValidationError as error:
            raise ProblemError.of_fields(field_faults(error.errors(), SendBackRequest)) from None
        check_send_back(settings, wanted)
        key = key_of(request, body)
        headers = send_back_headers(wanted)
        topic = settings.topic_names.send_back
        if key is None and not kafka.has_transactions:
            producer = await kafka.producer()
            begun = producer.write(topic, wanted.payload, key=wanted.key_bytes, headers=headers)
            partition, offset = await acknowledged(begun)
            return SendBackAnswer(topic=topic, partition=partition, offset=offset)

        def begin(scheduler: TransactionalScheduler) -> PendingReceipt:
            return scheduler.begin_record(topic, wanted.payload, wanted.key_bytes, headers)

        work = Work([begin], key)
        with keys.hold(work):
            done = await kafka.at_once(work)
        if done.is_replay:
            response.headers[REPLAYED] = "true"
        written = done.written[0]
        return SendBackAnswer(topic=written.topic, partition=written.partition, offset=written.offset)

    return router


def send_back_headers(wanted: SendBackRequest) -> Headers:
    """As the consumer saw them, with what the request says in place of what they said."""
    carried: Headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in wanted.headers]
    told = {} if wanted.group is None else {CONSUMER_GROUP: wanted.group}
    if wanted.topic is not None and not _origin(wanted):
        told[RETRY_TOPIC] = wanted.topic
    for field, name in _NUMBERS.items():
        number = getattr(wanted, field)
        if number is not None:
            told[name] = str(number)
    replaced = set(told)
    if wanted.group is not None:
        replaced.add(DELAY)  # the level of the attempt before says nothing of this one
    kept = [header for header in carried if header[0] not in replaced]
    return [*kept, *((name, text.encode()) for name, text in told.items())]


def _origin(wanted: SendBackRequest) -> str:
    """The topic that it first came from, which the headers of a retry tell; empty where they do not."""
    return _last(wanted, RETRY_TOPIC)


def _last(wanted: SendBackRequest, name: str) -> str:
    """The last header of that name that is not empty; empty where there is none."""
    given = [value for header, value in wanted.headers if header == name and value]
    if not given:
        return ""
    return given[-1].decode(errors="replace") if isinstance(given[-1], bytes) else given[-1] or ""


def check_send_back(settings: Settings, wanted: SendBackRequest) -> None:
    """What the sidecar would reject, as far as that can be told at once."""
    names = settings.topic_names
    faults = []
    group = wanted.group or _last(wanted, CONSUMER_GROUP)
    if not group:
        faults.append(("group", "is missing"))
    elif group == settings.group_id:
        faults.append(("group", "is the sidecar's own; name the consumer group that has failed"))
    elif not all(map(is_legal_topic_name, (names.retry(group), names.dead_letter(group)))):
        faults.append(("group", "is too long for the name of a topic"))
    elif not settings.is_group_allowed(group):
        faults.append(("group", "is not among allowed_groups of this sidecar"))
    origin = _origin(wanted) or wanted.topic or ""
    if not is_legal_topic_name(names.physical(origin)):
        faults.append(("topic", "is not a valid topic name; say where the message was read from"))
    if not faults:
        parser = SendBackParser(names, settings.levels, settings.group_id)
        parsed = parser.parse(send_back_headers(wanted), b"", 0)
        if isinstance(parsed, Rejection):
            field = "topic" if parsed.code is ErrorCode.DESTINATION_NOT_ALLOWED else "headers"
            faults.append((field, parsed.message))
    if faults:
        raise ProblemError.of_fields(faults)
