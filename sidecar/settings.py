"""Every setting of the sidecar: one frozen model, read once by the command (flag > environment > file > default).

Each field's description is its help text; units are in the type. Flags and environment variables are derived from the
field names (``group_id``: ``--group-id``, ``TIMEWHEEL_GROUP_ID``), so there is no second list to keep in step.
"""

import fnmatch
import json
import os
import re
import socket
import zlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TextIO

import pydantic
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from connectors.contract import DEFAULT_LEVELS, DelayLevels, TopicNames
from connectors.durations import format_duration, parse_duration_ms
from connectors.kafka import PROTECTED_OPTIONS
from sidecar.data_dir import worker_name
from sidecar.errors import UsageError
from sidecar.loopback import is_loopback
from sidecar.option_references import Resolved, resolve
from sidecar.plan import Plan

if TYPE_CHECKING:
    from yaml import MappingNode

ENV_PREFIX = "TIMEWHEEL_"

MASK = "**********"
"""What is shown in place of a secret."""
_IS_MASKED = "is what 'timewheel config' shows in place of a secret; write the secret"

SECTIONS = {
    "Cluster and identity": "bootstrap_servers",
    "Topics": "topic_prefix",
    "What may be written where": "allowed_topics",
    "Delivery": "guarantee",
    "Timer wheel": "precision_ms",
    "Batches and memory": "batch_records",
    "HTTP": "http_address",
    "Logs and traces": "log_format",
}
"""Sections of `Settings`, in the order of its fields, each by its first field."""

_SECRET_OPTION = re.compile(
    r"pas|psw|pwd|secr|token|credential|key(?!store|tab|.*(location|file))|oauthbearer\.config|jaas", re.IGNORECASE
)
"""What may be a secret, mistyped names included: which options there are only librdkafka knows."""
_NO_JSON_OBJECT = 'is not a JSON object such as {"security.protocol": "SSL"}'


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration_ms(value)
    raise ValueError(f"{value!r} is not a duration; write a whole number with ms, s, m, h or d, such as 90s or 1h30m")


def _globs(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _levels(value: object) -> object:
    if isinstance(value, str):
        return DelayLevels.parse(value)
    if isinstance(value, DelayLevels):
        return value
    raise ValueError(f"{value!r} is not a text of blank-separated durations, such as '1s 5s 3h'")


def _kafka_options(value: object) -> object:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{_NO_JSON_OBJECT}: {error}") from None
    if isinstance(value, Mapping):
        return {str(name): resolve(str(name), _option_text(str(name), option)) for name, option in value.items()}
    raise ValueError("is not a map of librdkafka options and their values")


def _option_text(name: str, option: object) -> str:
    if option == MASK:
        raise ValueError(f"{name} {_IS_MASKED}")
    if isinstance(option, bool):
        return str(option).lower()
    if isinstance(option, str | int | float):
        return str(option)
    raise ValueError(f"{name} has no value that is a text, a number or true or false")  # which may be a secret


def _not_protected(options: dict[str, str]) -> dict[str, str]:
    if refused := sorted(set(options) & PROTECTED_OPTIONS):
        raise ValueError(
            f"{', '.join(refused)} cannot be set here: it is a setting of its own, or the guarantee depends on it"
        )
    return options


def _token(token: Any) -> Any:
    if not isinstance(token, str):
        return token
    token = token.strip()  # a Secret that was made of a file ends with a line break, which no request can send
    if token == MASK:
        raise ValueError(_IS_MASKED)
    if not re.fullmatch("[!-~]*", token):
        raise ValueError("has blanks or characters beyond ASCII, which no request can send; write letters and digits")
    return token or None  # an empty environment variable is no token


def _at_least(least_ms: int) -> AfterValidator:
    def check(duration_ms: int) -> int:
        if duration_ms < least_ms:
            raise ValueError(f"{format_duration(duration_ms)} is too short; the least is {format_duration(least_ms)}")
        return duration_ms

    return AfterValidator(check)


DurationMs = Annotated[
    int, BeforeValidator(_duration), PlainSerializer(lambda ms: format_duration(ms), return_type=str)
]
Globs = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_globs), PlainSerializer(lambda globs: ",".join(globs), return_type=str)
]
Levels = Annotated[
    DelayLevels,
    NoDecode,
    BeforeValidator(_levels),
    PlainSerializer(lambda levels: " ".join(map(format_duration, levels.delays_ms)), return_type=str),
]
# Decoded where it is read, so that the maps of flags, environment and file are merged option by option.
KafkaOptions = Annotated[dict[str, InstanceOf[str]], BeforeValidator(_kafka_options), AfterValidator(_not_protected)]

Token = Annotated[SecretStr | None, BeforeValidator(_token)]


def section_of(name: str) -> str:
    """The section that a setting belongs to."""
    names = list(Settings.model_fields)
    return [title for title, first in SECTIONS.items() if names.index(first) <= names.index(name)][-1]


def default_of(name: str) -> Any:
    """A setting's default, as it would be written in the file."""
    return Settings.model_construct().model_dump(mode="json", include={name})[name]


class YamlFile(YamlConfigSettingsSource):
    """The settings file, which is a map of names and values, or empty."""

    def _read_file(self, file_path: Path) -> dict[str, Any]:  # type: ignore[override]
        with file_path.open(encoding=self.yaml_file_encoding) as file:
            _check_text(file)
        content = super()._read_file(file_path)
        if not isinstance(content, dict):
            raise TypeError("is not a map; write one setting a line, such as 'group_id: timewheel'")
        return {str(name): value for name, value in content.items()}


def _check_text(file: TextIO) -> None:
    """Raises ValueError for what YAML would read otherwise than it is written, and say nothing."""
    import yaml  # here: most commands read no file

    root = yaml.compose(file, yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        _check_each_is_said_once(root)
        for name, options in root.value:
            if name.value == "kafka" and isinstance(options, yaml.MappingNode):
                _check_options_are_as_written(options)


def _check_options_are_as_written(options: "MappingNode") -> None:
    """A password 0123 would be 83, and one of yes would be true."""
    import yaml

    for name, option in options.value:
        is_text = not isinstance(option, yaml.ScalarNode) or option.tag.endswith(":str")
        read = None if is_text else yaml.safe_load(option.value)
        is_switch = isinstance(read, bool) and not _SECRET_OPTION.search(str(name.value))
        if isinstance(read, int | float) and not is_switch and str(read) != option.value:
            line = option.start_mark.line + 1
            raise ValueError(
                f"has a value of {name.value} that YAML reads as another, in line {line}; put it in quotes"
            )


def _check_each_is_said_once(root: "MappingNode") -> None:
    """For a name that stands twice in the file's map, or in one within it, YAML would let the last one win."""
    import yaml

    within = [value for _, value in root.value]
    for node in [root, *within]:
        lines: dict[str, int] = {}
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            text, line = str(name.value), name.start_mark.line + 1
            if text in lines:
                raise ValueError(f"has {text} twice, in lines {lines[text]} and {line}; keep one of them")
            lines[text] = line


class Settings(BaseSettings):
    """The sidecar's settings, resolved and checked."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", validate_default=False, arbitrary_types_allowed=True
    )

    bootstrap_servers: str = Field(
        "localhost:9092", min_length=1, description="Kafka brokers, host:port, comma-separated."
    )
    kafka: KafkaOptions = Field(
        {},
        description="Any librdkafka option (TLS, SASL, tuning): a map in YAML, JSON in the environment, "
        "key=value repeated on the command line. A value may be ${dir:PATH:FILE} or ${env:NAME}.",
    )
    group_id: str = Field(
        "timewheel",
        min_length=1,
        description="Consumer group of all replicas; progress is committed under it. All sidecars on one set of "
        "schedule topics share it: a second group delivers everything again, and whatever the other "
        "rolls, too.",
    )
    instance_id: str | None = Field(
        None,
        min_length=1,
        pattern=r"^[a-zA-Z0-9._-]+$",
        description="Identity of this sidecar: its group.instance.id and transactional ids begin with it. "
        "Default: from host name and data directory.",
    )
    membership: Literal["static", "dynamic"] = Field(
        "static",
        description="static: a restart keeps its partitions (stable host names). "
        "dynamic: leaves the group on stop (pods with new names).",
    )
    session_timeout: Annotated[DurationMs, _at_least(1_000)] = Field(
        10_000, description="A sidecar without a heartbeat for this long loses its partitions to another replica."
    )
    start_timeout: DurationMs = Field(
        10_000,
        description="How long a start waits for Kafka before it ends with exit code 3; 0s: as long as it takes, and "
        "`/healthz` answers meanwhile.",
    )
    data_dir: Path = Field(
        Path("timewheel-data"), description="Directory of the local state, a cache of what Kafka holds."
    )
    workers: int = Field(
        1, ge=1, le=256, description="Processes that share the partitions; more than one uses more than one core."
    )

    topic_prefix: str = Field("", description="Put before the name of every topic that Timewheel owns.")
    schedule_topic_template: str = Field(
        "SCHEDULE_TOPIC_XXXX-{queue}",
        description="Names of the schedule topics; {queue} is a level, wheel, sendback, redriven or idempotency.",
    )
    retry_topic_template: str = Field("RETRY-{group}", description="Names of the consumer groups' retry topics.")
    dead_letter_topic_template: str = Field(
        "DLQ-{group}", description="Names of the consumer groups' dead-letter topics."
    )
    levels: Levels = Field(
        DelayLevels.parse(DEFAULT_LEVELS),
        description="Delay levels, from level 1 on: durations separated by blanks. A start with fewer levels is "
        "refused while records wait on one that is gone.",
    )
    create_topics: bool = Field(True, description="Create missing schedule topics at start.")
    partitions: int = Field(1, ge=1, le=10_000, description="Partitions of topics that the sidecar creates.")
    replication_factor: int = Field(
        -1, ge=-1, le=100, description="Replicas of topics that the sidecar creates; -1: the broker's default."
    )
    dead_letter_retention: Annotated[DurationMs, _at_least(1_000)] = Field(
        30 * 86_400_000, description="How long dead letters are kept, in topics that the sidecar creates."
    )

    allowed_topics: Globs = Field(("*",), description="Destinations that REAL_TOPIC may name.")
    denied_topics: Globs = Field((), description="Destinations that REAL_TOPIC may not name; wins over allowed_topics.")
    allowed_groups: Globs = Field(("*",), description="Groups that may have retry and dead-letter topics.")
    max_group_topics: int = Field(
        1_000, ge=0, description="Once there are this many retry and dead-letter topics, no more are created."
    )
    create_destinations: bool = Field(
        False,
        description="Create a destination topic that does not exist (partitions and replication_factor apply). A "
        "misspelt REAL_TOPIC is then a topic that nobody reads, instead of a dead letter: say in allowed_topics what "
        "there may be.",
    )

    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        "exactly_once", description="at_least_once: for clusters without transactions; a crash may send twice."
    )
    max_delay: DurationMs = Field(
        366 * 86_400_000, description="Longest delay that is accepted; a longer one is rejected."
    )
    max_clock_skew: DurationMs = Field(
        5_000, description="How far ahead of the sidecar's clock a record's timestamp counts; beyond that it is cut."
    )
    skip_unknown_error: bool = Field(
        False,
        description="Send a record that Kafka refuses with an unknown error to the dead letters; "
        "otherwise it is tried again until Kafka takes it, and its partition waits.",
    )
    stop_enqueue: bool = Field(
        False, description="Start with intake stopped: no schedule topic is read. 'timewheel switch' changes it."
    )
    stop_dequeue: bool = Field(
        False, description="Start with delivery stopped: nothing is published. 'timewheel switch' changes it."
    )
    trace_headers: bool = Field(False, description="Add TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS to delivered records.")

    precision_ms: int = Field(1_000, ge=1, le=3_600_000, description="Milliseconds of one slot of the timer wheel.")
    slots_total: int = Field(
        604_800, ge=4, le=100_000_000, description="Slots of the timer wheel; its file holds twice as many."
    )
    roll_window: DurationMs = Field(
        2 * 86_400_000,
        description="A message with a longer delay is written again this often, so that retention does not remove it.",
    )
    roll_spread: DurationMs = Field(
        3 * 3_600_000,
        description="It is written again up to this much sooner, neighbours at different times, so that what was "
        "scheduled at once does not roll at once. Unless given, at most a sixteenth of roll_window, in whole minutes.",
    )
    disk_quota_bytes: int = Field(
        0, ge=0, description="Most bytes of disk for one wheel partition; beyond it intake pauses. 0: no limit."
    )

    batch_records: int = Field(10_000, ge=1, le=100_000, description="Most records in one transaction.")
    batch_bytes: int = Field(
        16 * 2**20,
        ge=1_024,
        description="Most payload bytes in one transaction, roughly; fewer while the brokers are slow.",
    )
    read_ahead_records: int = Field(
        20_000, ge=1, description="Most records of one level partition held in memory; beyond it reading pauses."
    )
    read_ahead_bytes: int = Field(8 * 2**20, ge=1_024, description="The same for payload bytes, roughly.")
    transaction_timeout: Annotated[DurationMs, _at_least(1_000)] = Field(
        10_000, description="How long a killed sidecar's open transaction may hold up readers of its destinations."
    )

    http_address: str = Field(
        "127.0.0.1:8080", description="host:port of health, metrics and API; port 0: any free one."
    )
    http_token: Token = Field(
        None, description="Bearer token of the API; required when http_address is not a loopback address."
    )
    http_max_body_bytes: int = Field(
        4 * 2**20, ge=1_024, le=64 * 2**20, description="The largest request body that the API accepts."
    )

    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: console on a terminal, else json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    log_records: bool = Field(
        False, description="Log the key and the first 200 bytes of each rejected record that is logged."
    )
    otel: bool = Field(
        False,
        description="Trace deliveries with OpenTelemetry (the extra otel); the OTEL_* variables say where to and how.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        yaml_settings = YamlFile(settings_cls, yaml_file=settings_cls.model_config.get("yaml_file"))
        return init_settings, env_settings, yaml_settings

    @field_validator("*", mode="before")
    @classmethod
    def _check_no_switch(cls, value: object, info: ValidationInfo) -> object:
        # YAML's yes, no, on and off are true and false, which Python takes for 1 and 0.
        field = cls.model_fields[str(info.field_name)]
        reads_itself = any(isinstance(part, BeforeValidator) for part in field.metadata)
        if isinstance(value, bool) and field.annotation is int and not reads_itself:
            raise ValueError(f"{str(value).lower()} is not a number")
        return value

    @field_validator("replication_factor")
    @classmethod
    def _check_replication_factor(cls, replicas: int) -> int:
        if replicas == 0:
            raise ValueError("a topic has at least one replica; -1 leaves their number to the broker")
        return replicas

    @field_validator("data_dir", mode="before")
    @classmethod
    def _check_data_dir(cls, given: object) -> object:
        if given == "":
            raise ValueError("is empty; name a directory, '.' for the current one")
        return given

    @field_validator("http_address")
    @classmethod
    def _check_http_address(cls, address: str) -> str:
        host, separator, port = address.rpartition(":")
        is_port = re.fullmatch("[0-9]{1,5}", port) and int(port) <= 65_535
        if not separator or not is_port or not _is_host(host.strip("[]")):
            raise ValueError(f"'{address}' is not host:port, such as 127.0.0.1:8080")
        return address

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        self.topic_names  # raises for templates that make no legal topic name  # noqa: B018
        shortest_ms, longest_ms = 2 * self.precision_ms, (self.slots_total - 1) * self.precision_ms
        if "roll_window" in self.model_fields_set and not shortest_ms <= self.roll_window <= longest_ms:
            raise ValueError(
                f"roll_window is {format_duration(self.roll_window)}; with slots_total {self.slots_total} of "
                f"{self.precision_ms} ms it can be {format_duration(shortest_ms)} to {format_duration(longest_ms)}"
            )
        if self._roll_spread_ms > self._roll_window_ms // 4:
            raise ValueError(
                f"roll_spread is {format_duration(self.roll_spread)}; with a roll_window of "
                f"{format_duration(self._roll_window_ms)} it can be 0s to {format_duration(self._roll_window_ms // 4)}"
            )
        return self

    def check_listening(self) -> None:
        """For whoever is going to listen; the others need no token for the address that an image sets for all.

        Raises:
            UsageError: anybody could ask.
        """
        if not self.http_is_local and self.http_token is None:
            raise UsageError(
                f"http_address {self.http_address} is reachable from outside and needs http_token "
                "(TIMEWHEEL_HTTP_TOKEN); or listen on 127.0.0.1"
            )

    @property
    def http_host(self) -> str:
        return self.http_address.rpartition(":")[0].strip("[]")

    @property
    def http_port(self) -> int:
        return int(self.http_address.rpartition(":")[2])

    @property
    def http_is_local(self) -> bool:
        return is_loopback(self.http_host)

    @property
    def topic_names(self) -> TopicNames:
        return TopicNames(
            self.topic_prefix, self.schedule_topic_template, self.retry_topic_template, self.dead_letter_topic_template
        )

    @property
    def plan(self) -> Plan:
        """What decides when a wheel record is acted on."""
        return Plan(
            roll_window_ms=self._roll_window_ms,
            precision_ms=self.precision_ms,
            max_delay_ms=self.max_delay,
            levels=" ".join(map(format_duration, self.levels.delays_ms)),
            spread_ms=self._roll_spread_ms,
        )

    @property
    def _roll_window_ms(self) -> int:
        """The default is cut where the wheel is small."""
        return min(self.roll_window, (self.slots_total - 1) * self.precision_ms)

    @property
    def _roll_spread_ms(self) -> int:
        """The default is cut where the window is short: to nothing, where a sixteenth of it is less than a minute."""
        if "roll_spread" in self.model_fields_set:
            return self.roll_spread
        return min(self.roll_spread, self._roll_window_ms // 16 // 60_000 * 60_000)

    @property
    def identity(self) -> str:
        """What tells this sidecar from every other: it outlives the disk, and two never share one."""
        if self.instance_id is not None:
            return self.instance_id
        directory = zlib.crc32(os.fsencode(self.data_dir.absolute()))
        host = re.sub(r"[^a-zA-Z0-9._-]", "-", socket.gethostname())
        return f"{host}-{directory:08x}"

    def of_worker(self, number: int) -> "Settings":
        """The settings of one worker of several, counted from 1: a directory and an identity of its own."""
        name = worker_name(number)
        own = {"workers": 1, "data_dir": self.data_dir / name, "instance_id": f"{self.identity}-{name}"}
        return self.model_copy(update=own)

    def is_topic_allowed(self, topic: str) -> bool:
        """Whether a producer may name this topic as its destination (the sidecar's own topics are judged elsewhere)."""
        return _matches(topic, self.allowed_topics) and not self.is_topic_denied(topic)

    def is_topic_denied(self, topic: str) -> bool:
        """Whether a topic is denied in so many words, which holds for retry and dead-letter topics too."""
        if not self.denied_topics:
            return False
        return _matches(topic, tuple(map(self.topic_names.physical_glob, self.denied_topics)))

    def is_group_allowed(self, group: str) -> bool:
        return _matches(group, self.allowed_groups)

    def told_in_metrics(self) -> dict[str, Any]:
        """What tells one sidecar from another, for ``timewheel_config_info``."""
        names = (
            "group_id",
            "guarantee",
            "membership",
            "topic_prefix",
            "workers",
            "levels",
            "roll_window",
            "precision_ms",
        )
        shown = self.model_dump(mode="json", include=set(names)) | self._in_effect
        return {name: shown[name] for name in names}

    @property
    def _in_effect(self) -> dict[str, str]:
        """Of settings whose default is cut where others are small: what holds."""
        return {
            "roll_window": format_duration(self._roll_window_ms),
            "roll_spread": format_duration(self._roll_spread_ms),
        }

    def secrets(self) -> list[str]:
        """The values of secret settings, to be kept out of logs."""
        token = [self.http_token.get_secret_value()] if self.http_token else []
        return token + [option for name, option in self.kafka.items() if _SECRET_OPTION.search(name)]

    def masked(self) -> dict[str, Any]:
        """The resolved settings as they may be shown: secrets are replaced by asterisks."""
        shown = self.model_dump(mode="json") | self._in_effect
        shown["kafka"] = {
            name: MASK if _SECRET_OPTION.search(name) or isinstance(option, Resolved) else option
            for name, option in self.kafka.items()
        }
        return shown


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _is_host(host: str) -> bool:
    """Whether it may be the name or the address of a host."""
    try:
        return bool(host.encode("idna")) and re.search(r"[\s/@?#\x00-\x1f\x7f]", host) is None
    except UnicodeError:  # an empty or a long part
        return False


def load_settings(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> Settings:
    """Settings from flags, environment and file.

    Raises:
        UsageError: names every field that cannot be used, its value's fault, and what to write.
    """
    if config_file is not None:
        _check_file(config_file)
    try:
        found = _settings_class(config_file)(**dict(flags or {}))
        # Of no class that this call alone knows: other processes are told of them, and a pickle names their class.
        return Settings.model_construct(found.model_fields_set, **dict(found))
    except pydantic.ValidationError as error:
        _raise_usage_error(error)
    except SettingsError as error:  # of the environment, where kafka alone is decoded before it is checked
        raise UsageError(f"kafka: {_NO_JSON_OBJECT}: {error.__cause__}") from error
    except (ValueError, TypeError, OSError, RecursionError) as error:  # a file that is no map, no text, or unreadable
        raise UsageError(f"{config_file or 'settings'}: {error}") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            # Not the parser's words: of a password with a '*' or '!' before it they hold the rest.
            raise UsageError(
                f"{config_file} is not valid YAML{_place(error)}; text with special characters has to be quoted"
            ) from None
        raise


def _check_file(path: Path) -> None:
    try:
        if path.is_file():
            return
        why = "there is no such file"
        if path.exists():
            why = f"is {'a directory' if path.is_dir() else 'no regular file'}; name a YAML file"
    except OSError as error:
        why = f"{error.strerror}; name a file that this user may read"
    raise UsageError(f"--config {path}: {why}")


def _place(error: Exception) -> str:
    """Where PyYAML has stopped, as far as it says."""
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"


_WANTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
}
"""By Pydantic's type of error."""


def unknown_environment() -> list[tuple[str, str]]:
    """Environment variables with our prefix that name no setting, most likely a typing error; and the remedy."""
    known = [name.upper() for name in (*Settings.model_fields, "config", "cache_dir")]
    # Ours for tests; Kubernetes' service links of a release of that name.
    ignored = ("TEST_", "SERVICE_", "PORT", "API_")
    # Without the prefix, which would make all of them look close.
    ours = sorted(name.removeprefix(ENV_PREFIX) for name in os.environ if name.startswith(ENV_PREFIX))
    unknown = [name for name in ours if name not in known and not name.startswith(ignored)]
    meant = {name: _meant_by(name, known) for name in unknown}
    return [
        (f"{ENV_PREFIX}{name}", f"did you mean {ENV_PREFIX}{close}?" if close else "correct or unset it")
        for name, close in meant.items()
    ]


def _meant_by(name: str, known: Iterable[str]) -> str:
    """What somebody may have mistyped; empty where nothing is close."""
    return next(iter(get_close_matches(name, known, 1)), "")


def _settings_class(config_file: Path | None) -> type[Settings]:
    if config_file is None:
        return Settings

    class FileSettings(Settings):
        model_config = SettingsConfigDict(yaml_file=config_file)

    return FileSettings


def _raise_usage_error(error: pydantic.ValidationError) -> NoReturn:
    lines = []
    for fault in error.errors():
        name = ".".join(map(str, fault["loc"])) or "settings"
        if fault["type"] == "extra_forbidden":
            meant = _meant_by(name, Settings.model_fields)
            hint = f" (did you mean {meant}?)" if meant else ""
            lines.append(f"{name}: there is no such setting{hint}; 'timewheel config' lists them all")
        elif fault["type"] in _WANTED:
            lines.append(f"{name}: {fault['input']!r} is not {_WANTED[fault['type']]}")
        else:
            message = fault["msg"].removeprefix("Value error, ")
            lines.append(f"{name}: {message}")
    raise UsageError("\n".join(lines)) from None
