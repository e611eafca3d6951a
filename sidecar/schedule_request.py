"""What is to be scheduled, as JSON: the body of ``POST /api/v1/messages`` and a line of ``timewheel send --file``.

>>> request = ScheduleRequest.model_validate_json('{"topic": "orders", "value": "v", "delay": "1m30s"}')
>>> request.delay_ms, request.payload
(90000, b'v')
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Self

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

from connectors.durations import format_duration, parse_duration_ms
from connectors.times import epoch_ms, parse_time
from sidecar.clock import SystemClock

_DURATION = "write a whole number with ms, s, m, h or d, such as 90s or 1h30m"


def _duration(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_duration_ms(value)
    raise ValueError(f"{value!r} is not a duration; {_DURATION}")


def _time(value: object) -> object:
    return None if value is None else parse_time(value)


def _bytes(value: object) -> object:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("is not base64 text; its alphabet is A-Z, a-z, 0-9, + and /, padded with =") from None


def _json(value: object) -> object:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise ValueError("has a number that JSON does not know, such as NaN") from None


def _headers(value: object) -> object:
    if value is None:
        return []
    pairs = list(value.items()) if isinstance(value, dict) else value
    if isinstance(pairs, list) and all(map(_is_header, pairs)):
        if any("\0" in name for name, _ in pairs):
            raise ValueError("has a NUL in a name, where Kafka's clients in C end it; take it out")
        return [(name, _bytes(text["base64"]) if isinstance(text, dict) else text) for name, text in pairs]
    raise ValueError(
        'is neither a map of names to texts nor a list of pairs such as ["TAGS", "a"]; null is a value, and '
        'bytes are {"base64": "…"}'
    )


def _is_header(pair: object) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    name, text = pair
    is_bytes = isinstance(text, dict) and set(text) == {"base64"}
    return isinstance(name, str) and name != "" and (is_bytes or isinstance(text, str | None))


_BASE64 = {"type": "string", "contentEncoding": "base64"}
_HEADER_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "null"]},
        {"type": "object", "properties": {"base64": _BASE64}, "required": ["base64"], "additionalProperties": False},
    ]
}
_HEADERS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "null"},
        {"type": "object", "additionalProperties": _HEADER_SCHEMA},
        {
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [{"type": "string"}, _HEADER_SCHEMA],
                "minItems": 2,
                "maxItems": 2,
            },
        },
    ],
    "description": "Headers by name, or as pairs in order where names repeat; values are text, null or base64.",
}

Base64 = Annotated[bytes | None, BeforeValidator(_bytes), WithJsonSchema(_BASE64)]
DeliverAt = Annotated[
    datetime | None, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})
]
DelayMs = Annotated[
    int | None, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["90s", "1h30m"]})
]


class MessageBody(BaseModel):
    """A record: what all requests that bring one have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    value: str | None = Field(None, description="The value as text; null is a tombstone.")
    value_json: Annotated[Any, BeforeValidator(_json), WithJsonSchema({})] = Field(
        None,
        description="Any JSON in place of `value`; its text, without blanks, is the value. Numbers with a fraction "
        "are doubles in it, and of a name that comes twice the last counts; a text in `value` is left as it is.",
    )
    value_base64: Base64 = Field(None, description="The value as bytes, in base64, in place of `value`.")
    key: str | None = Field(None, description="The key; it decides the partition, and is delivered with the message.")
    key_base64: Base64 = Field(None, description="The key as bytes, in base64, in place of `key`.")
    headers: Annotated[
        list[tuple[str, str | bytes | None]], BeforeValidator(_headers, json_schema_input_type=Any), Strict(False)
    ] = Field([], json_schema_extra=_HEADERS_SCHEMA)

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        given = self.model_fields_set & {"value", "value_json", "value_base64"}
        if not given or sum(part is not None for part in (self.value, self.value_json, self.value_base64)) > 1:
            raise ValueError("give the message with one of value, value_json and value_base64")
        if self.key is not None and self.key_base64 is not None:
            raise ValueError("give the key with one of key and key_base64")
        return self

    @property
    def payload(self) -> bytes | None:
        """The value to produce."""
        if self.value is not None:
            return self.value.encode()
        payload: bytes | None = self.value_json if self.value_base64 is None else self.value_base64
        return payload

    @property
    def key_bytes(self) -> bytes | None:
        """The key to produce."""
        return self.key_base64 if self.key is None else self.key.encode()


class ScheduleRequest(MessageBody):
    """One message, and when it is to be delivered."""

    topic: str = Field(min_length=1, description="The topic to deliver to.")
    deliver_at: DeliverAt = Field(None, description="Deliver at this time, ISO 8601 with a zone.")
    delay_ms: DelayMs = Field(None, alias="delay", description="Deliver after this long.")
    level: int | None = Field(None, ge=1, description="Deliver after the delay of this level. Not to be cancelled.")

    @model_validator(mode="after")
    def _check_when(self) -> Self:
        if sum(when is not None for when in (self.deliver_at, self.delay_ms, self.level)) != 1:
            raise ValueError("say when with exactly one of deliver_at, delay and level")
        return self


def too_far(max_delay_ms: int, deliver_at: datetime | None, delay_ms: int | None) -> str:
    """That a sidecar with this ``max_delay`` would reject the time; empty where it would not.

    Args:
        deliver_at: or ``delay_ms``, or neither, for a level.
    """
    if deliver_at is not None:
        delay_ms = epoch_ms(deliver_at) - SystemClock().now_ms()
    if delay_ms is None or delay_ms <= max_delay_ms:
        return ""
    return f"is further away than max_delay ({format_duration(max_delay_ms)})"


def faults(error: ValidationError) -> list[str]:
    """What is wrong with a request, a sentence for each field, with the remedy."""
    return [": ".join(filter(None, told)) for told in field_faults(error.errors(), ScheduleRequest)]


def field_faults(faults: Iterable[Mapping[str, Any]], model: type[BaseModel]) -> list[tuple[str, str]]:
    """Each field that cannot be used, and the remedy; in a list, with the number of the item before it."""
    return [(_field(fault["loc"]), _remedy(fault, model)) for fault in faults]


def _field(location: tuple[int | str, ...]) -> str:
    """What is below a field is told with the field."""
    is_in_list = bool(location) and isinstance(location[0], int)
    return ".".join(map(str, location[: 2 if is_in_list else 1]))


def _remedy(fault: Mapping[str, Any], model: type[BaseModel]) -> str:
    names = ", ".join(field.alias or name for name, field in model.model_fields.items())
    match fault["type"]:
        case "json_invalid":
            return f"is not valid JSON: {fault['ctx']['error']}"
        case "model_type" | "model_attributes_type":
            return f"is not a JSON object with the fields {names}"
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"there is no such field; the fields are {names}"
        case "string_type" if fault["loc"][-1] == "value":
            return "has to be text, in quotes; for JSON use value_json"
        case "string_type":
            return "has to be text, in quotes"
        case "string_too_short":
            return "is empty"
        case "int_type" | "greater_than_equal":
            return f"has to be a whole number ({fault.get('ctx', {}).get('ge', 1)} or more)"
        case "list_type":
            return "is not a list"
        case _:
            message: str = fault["msg"]
            return message.removeprefix("Value error, ")
