"""What is to be scheduled, as JSON: the body of ``POST /api/v1/messages`` and a line of ``timewheel send --file``.

>>> request = ScheduleRequest.model_validate_json('{"topic": "orders", "value": "v", "delay": "1m30s"}')
>>> request.delay_ms, request.payload
(90000, b'v')
"""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from connectors.durations import parse_duration_ms

_DURATION = "write a whole number with ms, s, m, h or d, such as 90s or 1h30m"
_TIME = "write an ISO 8601 time with its zone, such as 2030-01-31T09:00:00+01:00"


def _duration(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_duration_ms(value)
    raise ValueError(f"{value!r} is not a duration; {_DURATION}")


def _time(value: object) -> object:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise ValueError(f"{value!r} is no time; {_TIME}") from None
    if time.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone; {_TIME}")
    return time


def _bytes(value: object) -> object:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("is no base64 text; its alphabet is A-Z, a-z, 0-9, + and /, padded with =") from None


def _headers(value: object) -> object:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if isinstance(pairs, list) and all(map(_is_header, pairs)):
        return [tuple(pair) for pair in pairs]
    raise ValueError('is neither a map of names to texts nor a list of pairs such as ["TAGS", "a"]; null is a value')


def _is_header(pair: object) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    name, text = pair
    return isinstance(name, str) and name != "" and isinstance(text, str | None)


_HEADERS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
    ],
    "description": "Headers by name, or as pairs in order where names repeat.",
}


class ScheduleRequest(BaseModel):
    """One message, and when it is to be delivered."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    topic: str = Field(min_length=1, description="The topic to deliver to.")
    value: str | None = Field(None, description="The value as text; null is a tombstone.")
    value_base64: Annotated[
        bytes | None, BeforeValidator(_bytes), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
    ] = Field(None, description="The value as bytes, in base64, in place of `value`.")
    key: str | None = Field(None, description="The key; it decides the partition, and is delivered with the message.")
    headers: Annotated[
        list[tuple[str, str | None]], BeforeValidator(_headers, json_schema_input_type=Any), Strict(False)
    ] = Field([], json_schema_extra=_HEADERS_SCHEMA)
    deliver_at: Annotated[
        datetime | None, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})
    ] = Field(None, description="Deliver at this time, ISO 8601 with a zone.")
    delay_ms: Annotated[
        int | None, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["90s", "1h30m"]})
    ] = Field(None, alias="delay", description="Deliver after this long.")
    level: int | None = Field(None, ge=1, description="Deliver after the delay of this level. Not to be cancelled.")

    @model_validator(mode="after")
    def _check_together(self) -> "ScheduleRequest":
        is_given = "value" in self.model_fields_set or "value_base64" in self.model_fields_set
        if not is_given or (self.value is not None and self.value_base64 is not None):
            raise ValueError("give the message with one of value and value_base64")
        if sum(when is not None for when in (self.deliver_at, self.delay_ms, self.level)) != 1:
            raise ValueError("say when with one of deliver_at, delay and level")
        return self

    @property
    def payload(self) -> bytes | None:
        """The value to produce."""
        if self.value_base64 is not None:
            return self.value_base64
        return None if self.value is None else self.value.encode()


def faults(error: ValidationError) -> list[str]:
    """What is wrong with a request, a sentence for each field, with the remedy."""
    return [": ".join(filter(None, (_field(fault["loc"]), _remedy(dict(fault))))) for fault in error.errors()]


def _field(location: tuple[int | str, ...]) -> str:
    return str(location[0]) if location else ""


def _remedy(fault: dict[str, Any]) -> str:
    match fault["type"]:
        case "json_invalid":
            return f"is no JSON: {fault['ctx']['error']}"
        case "model_type" | "model_attributes_type":
            return "is no JSON object with the fields of a message"
        case "missing":
            return "is missing"
        case "extra_forbidden":
            names = (field.alias or name for name, field in ScheduleRequest.model_fields.items())
            return f"there is no such field; the fields are {', '.join(names)}"
        case "string_type":
            return "has to be text, in quotes"
        case "string_too_short":
            return "is empty"
        case "int_type" | "greater_than_equal":
            return "has to be a whole number, counted from 1"
        case _:
            message: str = fault["msg"]
            return message.removeprefix("Value error, ")
