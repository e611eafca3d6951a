"""The command: help with an example that runs, exit codes that scripts rely on, sentences instead of tracebacks."""

import errno
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from confluent_kafka import KafkaError, KafkaException

import sidecar.cli.ask
import sidecar.cli.cancel
import sidecar.cli.send
import sidecar.cli.store
from connectors import ScheduledProducer
from connectors.receipt import Receipt
from connectors.testing import InMemoryKafka
from sidecar.cli.main import MODULE_OF, main, make_app
from sidecar.cli.sidecar_api import Answer
from sidecar.data_dir import DataDir
from sidecar.errors import TimewheelError
from sidecar.kafka import topics
from sidecar.kafka.topic_plan import plan_topics
from sidecar.settings import SECTIONS, Settings, load_settings, section_of, unknown_environment
from sidecar.store.timer_store import quota_bytes_min
from sidecar.version import installed_version
from tests.support.timer_store import a_store, put, record


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A wide terminal without colours, and no variables of ours."""
    for name in list(os.environ):
        if name.upper().startswith("TIMEWHEEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return monkeypatch


@pytest.fixture
def timewheel(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""

    def run(*arguments: str | Path) -> Ended:
        environment.setattr(sys, "argv", ["timewheel", *map(str, arguments)])
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        with pytest.raises(SystemExit) as ended:
            main()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        stdout, stderr = capsys.readouterr()
        return Ended(int(ended.value.code or 0), stdout, stderr)

    return run


def test_the_settings_file_may_be_named_in_the_environment(
    timewheel: Run, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def group_id(*arguments: str | Path) -> object:
        return json.loads(timewheel("config", "--json", *arguments).stdout)["group_id"]

    named, other = tmp_path / "named.yaml", tmp_path / "other.yaml"
    named.write_text("group_id: named")
    other.write_text("group_id: other")
    environment.setenv("TIMEWHEEL_CONFIG", str(named))
    assert unknown_environment() == []
    assert group_id() == "named"
    assert group_id("--config", other) == "other"
    environment.setenv("TIMEWHEEL_CONFIG", "")
    assert group_id() == "timewheel"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", rb'"\u00fc \u0663 \ud83d\ude00"'),
        ("latin-1", b'"\xfc \\u0663 \\ud83d\\ude00"'),
        ("utf-8", '"\xfc \u0663 \U0001f600"'.encode()),
    ],
)
def test_what_standard_output_has_no_character_for_is_escaped(
    environment: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    """Values and headers may hold anything, and it stays JSON."""
    written = BytesIO()
    environment.setattr(sys, "stdout", TextIOWrapper(written, encoding=encoding))
    environment.setattr(sys, "argv", ["timewheel", "status"])
    environment.setattr(
        "sidecar.cli.main.make_app", lambda _: lambda: print(json.dumps("\xfc \u0663 \U0001f600", ensure_ascii=False))
    )
    environment.setattr(signal, "signal", lambda *_: None)
    main()
    sys.stdout.flush()
    assert written.getvalue().rstrip() == shown
    assert json.loads(written.getvalue().decode(encoding)) == "\xfc \u0663 \U0001f600"


@pytest.mark.parametrize("command", [["config", "--json"], ["status"], ["topics", "check"]], ids=" ".join)
def test_a_variable_that_names_no_setting_is_told_beside_the_answer(
    timewheel: Run, environment: pytest.MonkeyPatch, closed_address: str, command: list[str]
) -> None:
    environment.setattr(topics.reach_kafka, "__defaults__", (0.3,))
    environment.setenv("TIMEWHEEL_BOOTSTRAP_SERVERS", closed_address)
    environment.setenv("TIMEWHEEL_HTTP_ADDRESS", closed_address)
    environment.setenv("TIMEWHEEL_GRUP_ID", "a")
    ended = timewheel(*command)
    told = "timewheel: environment variable TIMEWHEEL_GRUP_ID names no setting; did you mean TIMEWHEEL_GROUP_ID?"
    assert ended.stderr.splitlines().count(told) == 1
    if command[0] == "config":
        assert json.loads(ended.stdout)["group_id"] == "timewheel"


STOPPED_EARLY = """
import os, signal, sys
from sidecar.cli import main

load = main.import_module

def stopped_meanwhile(name):
    os.kill(os.getpid(), getattr(signal, sys.argv.pop()))
    return load(name)

main.import_module = stopped_meanwhile
sys.argv = ["timewheel", "run", sys.argv[1]]
main.main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_stop_before_anything_is_begun_is_heeded(name: str) -> None:
    """The first process of a container has no default action: it would start, and be killed when the grace is over."""
    ended = subprocess.run([sys.executable, "-c", STOPPED_EARLY, name], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, f"timewheel: {name} before anything was begun\n")


ENDED_AT_WORK = """
import os, signal, sys
from sidecar.cli import main

def work():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        print("went on")
    finally:
        print("cleaned up")

main.make_app = lambda command: work
sys.argv = ["timewheel", "demo"]
main.main()
"""


def test_a_command_that_is_ended_cleans_up() -> None:
    """The demo has processes, send --file has records whose receipts are to be told, status --watch has the screen."""
    ended = subprocess.run([sys.executable, "-c", ENDED_AT_WORK], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "cleaned up\n", "")


@pytest.fixture
def closed_address() -> str:
    """An address of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def sidecar_process(*arguments: str | Path) -> Ended:
    """Runs ``timewheel run`` in a process of its own: it takes over signals, logging and the garbage collector."""
    command = [sys.executable, "-m", "sidecar", "run", "--http-address", "127.0.0.1:0", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name, command in group.commands.items():
        yield from commands(command, (*path, name))


def groups(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What holds the commands, the whole among them."""
    if hasattr(group, "commands"):
        yield path, group
        for name, command in group.commands.items():
            yield from groups(command, (*path, name))


ALL = typer.main.get_command(make_app())
COMMANDS, GROUPS = dict(commands(ALL)), dict(groups(ALL))


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_an_example_that_runs(timewheel: Run, path: tuple[str, ...]) -> None:
    ended = timewheel(*path, "--help")
    assert ended.exit_code == 0
    last_line = ended.stdout.rstrip().splitlines()[-1].strip()
    assert last_line.startswith("Example: timewheel ")
    words = shlex.split(last_line.partition(" < ")[0])[2:]
    assert tuple(words[: len(path)]) == path
    command = COMMANDS[path]
    parsed = command.make_context(" ".join(path), words[len(path) :])
    assert not parsed.args


@pytest.mark.parametrize("columns", ["80", "60"])
@pytest.mark.parametrize("path", [*COMMANDS, *GROUPS], ids=" ".join)
def test_no_option_s_name_is_cut_on_a_narrow_terminal(
    timewheel: Run, environment: pytest.MonkeyPatch, path: tuple[str, ...], columns: str
) -> None:
    environment.setenv("COLUMNS", columns)
    lines = timewheel(*path, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    words = set(re.split(r"[\s,]+", " ".join(line for line in lines if line.startswith("│"))))
    for option in {**COMMANDS, **GROUPS}[path].params:
        if option.param_type_name == "option":
            assert {*option.opts, *option.secondary_opts} <= words


def test_every_command_is_listed(timewheel: Run) -> None:
    assert {("run",), ("config",), ("demo",), ("kafka",), ("topics", "create"), ("send",)} <= set(COMMANDS)
    listed = timewheel("-h").stdout
    assert all(f" {path[0]} " in listed for path in COMMANDS)


def test_one_command_is_made_without_the_others(timewheel: Run) -> None:
    assert set(MODULE_OF) == set(typer.main.get_command(make_app()).commands)  # type: ignore[attr-defined]
    for name, module in MODULE_OF.items():
        alone = typer.main.get_command(make_app(name)).commands  # type: ignore[attr-defined]
        assert set(alone) == {other for other, its_module in MODULE_OF.items() if its_module == module}


def test_a_call_without_a_command_shows_the_help(timewheel: Run) -> None:
    ended = timewheel()
    assert ended.exit_code == 2
    assert "[OPTIONS] COMMAND [ARGS]..." in ended.stdout + ended.stderr


def test_every_setting_has_a_flag_under_the_heading_of_its_section(timewheel: Run) -> None:
    text = timewheel("run", "--help").stdout
    sections = dict(zip(SECTIONS, re.split("|".join(f"─ {title} ─" for title in SECTIONS), text)[1:], strict=True))
    for name in Settings.model_fields:
        assert re.search(rf"│ --{name.replace('_', '-')}\s", sections[section_of(name)]), name
    assert "TIMEWHEEL_CONFIG" in text
    assert "TIMEWHEEL_GROUP_ID" in text, "by which the others can be told"


def test_the_help_tells_what_a_setting_takes_and_its_default(timewheel: Run) -> None:
    text = timewheel("run", "--help").stdout
    for flag, takes, default in (
        ("session-timeout", "DURATION", "10s"),
        ("membership", "static|dynamic", "static"),
        ("workers", "NUMBER", "1"),
        ("log-format", "auto|console|json", "auto"),
    ):
        assert re.search(rf"--{flag} +{re.escape(takes)} [^│]*(?:│\s*│ {{9}}[^│]*)*\(default: {default}\)", text), flag


SHAPES_TOPICS = {
    "group_id": "b",
    "topic_prefix": "b.",
    "levels": "1s",
    "dead_letter_retention": "1d",
    "precision_ms": "100",
    "slots_total": "1000",
    "roll_window": "1d",
}
"""The settings that names and configurations of the topics follow from, with other values than the defaults."""


@pytest.mark.parametrize("path", [("topics", "create"), ("topics", "check")], ids=" ".join)
def test_topics_takes_each_setting_that_the_topics_follow_from(path: tuple[str, ...]) -> None:
    taken = {option.name for option in COMMANDS[path].params} & set(Settings.model_fields)
    assert taken - {"bootstrap_servers", "kafka", "partitions", "replication_factor"} == set(SHAPES_TOPICS)
    for name, value in SHAPES_TOPICS.items():
        assert plan_topics(load_settings({name: value})) != plan_topics(load_settings()), name


def test_the_version_is_the_installed_one(timewheel: Run) -> None:
    assert timewheel("--version") == Ended(0, f"timewheel {installed_version()}\n", "")


# --- config -----------------------------------------------------------------------------------------------------------


def test_config_prints_the_resolved_settings_with_secrets_masked(
    timewheel: Run, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "timewheel.yaml"
    file.write_text("group_id: from-file\npartitions: 3\nmax_delay: 1h30m\nkafka: {ssl.key.pem: hunter2}\n")
    environment.setenv("TIMEWHEEL_GROUP_ID", "from-environment")
    environment.setenv("TIMEWHEEL_PARTITIONS", "4")
    environment.setenv("TIMEWHEEL_HTTP_TOKEN", "hunter2")
    arguments = ["--config", file, "--partitions", "5", "--no-create-topics", "--denied-topics", "a,b-*"]
    arguments += ["--kafka", "sasl.password=hunter2", "--kafka", "client.rack=a=b"]
    ended = timewheel("config", *arguments, "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "hunter2" not in ended.stdout
    shown = json.loads(ended.stdout)
    assert set(shown) == set(Settings.model_fields)
    assert (shown["group_id"], shown["partitions"], shown["create_topics"]) == ("from-environment", 5, False)
    assert (shown["max_delay"], shown["denied_topics"], shown["http_token"]) == ("1h30m", "a,b-*", "**********")
    assert shown["kafka"] == {"ssl.key.pem": "**********", "sasl.password": "**********", "client.rack": "a=b"}
    assert yaml.safe_load(timewheel("config", *arguments).stdout) == shown


# --- exit code 2: usage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--levels", "1s 5x 3h"], "timewheel: levels: level 2 is '5x'"),
        (["--max-delay", "90"], "timewheel: max_delay: '90' is not a duration"),
        (["--partitions", "many"], "timewheel: partitions: "),
        (["--http-address", "0.0.0.0:8080"], "needs http_token"),
        (["--kafka", "acks=1"], "timewheel: kafka: acks cannot be set"),
        (["--kafka", "acks"], "number 1 is not key=value"),
        (["--kafka", "=1"], "number 1 is not key=value"),
        (["--config", "/absent.yaml"], "timewheel: --config /absent.yaml: there is no such file"),
        (["--grup-id", "a"], "No such option"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_what_cannot_be_used_is_named(timewheel: Run, arguments: list[str], told: str) -> None:
    ended = timewheel("config", *arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_key_of_the_file_that_names_no_setting_is_named(timewheel: Run, tmp_path: Path) -> None:
    (tmp_path / "timewheel.yaml").write_text("grup_id: a\nlevel: 1s\n")
    ended = timewheel("config", "--config", tmp_path / "timewheel.yaml")
    assert ended.exit_code == 2
    assert ended.stderr.splitlines() == [
        "timewheel: grup_id: there is no such setting (did you mean group_id?); 'timewheel config' lists them all",
        "timewheel: level: there is no such setting (did you mean levels?); 'timewheel config' lists them all",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["absent"],
        ["topics", "absent"],
        ["send", "--topic", "orders", "value"],
        ["send", "--topic", "orders", "--level", "1"],
        ["send", "--topic", "orders", "--level", "soon", "value"],
        ["send", "--topic", "orders", "--level", "1", "--header", "TAGS", "value"],
        ["send", "--topic", "orders", "--level", "1", "--header", "=a", "value"],
        ["send", "--topic", "orders", "--level", "1", "--header", "REAL_QID=x", "value"],
        ["send", "--topic", "orders", "--level", "1", "--levels", "1", "value"],
        ["send", "--file", "-", "--topic", "orders"],
        ["send", "--file", "-", "value"],
        ["cancel"],
        ["cancel", "no-receipt"],
        ["cancel", "--wait", "--timeout", "30", "no-receipt"],
        ["reschedule", "no-receipt", "--delay", "1s"],
        ["reschedule", "no-receipt"],
        ["pending", "--within", "soon"],
        ["pending", "--within", "1h", "--to", "2030-01-31T09:00:00Z"],
        ["pending", "--within", "1h", "--from", "2130-01-31T09:00:00Z"],
        ["pending", "--from", "2030-01-31T09:00:00Z", "--to", "2030-01-31T09:00:00Z"],
        ["pending", "--from", "2030-01-31T09:00:00"],
        ["pending", "--limit", "0"],
        ["pending", "--id", ""],
        ["pending", "--topic", ""],
        ["progress", "set", "--topic", "t", "--partition", "0", "--to", "soon"],
        ["progress", "set", "--topic", "t", "--partition", "0", "--to", "9" * 19],
        ["progress", "set", "--topic", "t", "--partition", str(2**31), "--to", "0"],
        ["progress", "set", "--to", "end"],
        ["progress", "set", "--topic", "t", "--to", "end"],
        ["progress", "set", "--all", "--partition", "0", "--to", "end"],
        ["progress", "set", "--all"],
        ["progress", "set", "--all", "--to", "end", "--due-after", "2026-01-31T09:00:00Z"],
        ["progress", "set", "--all", "--due-after", "2026-01-31T09:00:00"],
        ["progress", "set", "--all", "--due-after", "9999-01-31T09:00:00Z"],
        ["progress", "set", "--all", "--due-after", "1969-01-31T09:00:00Z"],
        ["switch"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_used_ends_with_2(timewheel: Run, arguments: list[str]) -> None:
    ended = timewheel(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["batch", "--out", "DIR", "--destination", "a b"], "--destination 'a b' is not a legal topic name"),
        (["batch", "--out", "DIR", "--destination", ""], "--destination '' is not a legal topic name"),
        (["batch", "--out", ""], "--out is empty; name a directory"),
        (["batch", "--out", "DIR", "--facts", " "], "--facts is empty; name a directory"),
        (["stream", "--facts", "", "--checkpoint", "DIR"], "--facts is empty; name a directory"),
        (["stream", "--facts", "DIR", "--checkpoint", ""], "--checkpoint is empty; name a directory"),
        (["alert", "--facts", "DIR", "--checkpoint", ""], "--checkpoint is empty; name a directory"),
        (["batch", "--out", "DIR/facts", "--facts", "DIR/facts"], "is within --facts DIR/facts"),
        (["stream", "--facts", "DIR", "--checkpoint", "DIR/checkpoint"], "is within --facts DIR"),
        (["stream", "--facts", "s3a://b/f/", "--checkpoint", "s3a://b/f/c"], "is within --facts s3a://b/f/"),
        (["alert", "--facts", "DIR", "--checkpoint", "DIR/sub/../alerts"], "is within --facts DIR"),
        (["batch", "--out", "DIR/file"], "DIR/file is not a directory"),
        (["batch", "--out", "DIR/file/audit"], "DIR/file is not a directory"),
        (
            ["batch", "--out", "DIR", "--from", "2030-01-02T00:00:00Z", "--as-of", "2030-01-01T00:00:00Z"],
            "--from 2030-01-02T00:00:00Z is not before --as-of",
        ),
        (
            ["stream", "--facts", "DIR/facts", "--checkpoint", "DIR", "--destination", "a b"],
            "--destination 'a b' is not a legal",
        ),
        (
            ["alert", "--facts", "DIR/facts", "--checkpoint", "DIR/_facts", "--topic", "a b"],
            "--topic 'a b' is not a legal topic name",
        ),
        (
            ["alert", "--facts", "DIR", "--checkpoint", "DIR/_c", "--metrics-file", "DIR/absent/file"],
            "DIR/absent is not a directory",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_an_audit_cannot_use_is_told_before_kafka_is_asked(
    timewheel: Run, tmp_path: Path, closed_address: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "file").touch()
    given = [argument.replace("DIR", str(tmp_path)) for argument in arguments]
    ended = timewheel("audit", *given, "--bootstrap-servers", closed_address)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said.replace("DIR", str(tmp_path)) in ended.stderr


def test_options_that_spark_cannot_have_are_told_before_kafka_is_asked(
    timewheel: Run, tmp_path: Path, closed_address: str
) -> None:
    verification = ["--kafka", "security.protocol=SSL", "--kafka", "enable.ssl.certificate.verification=false"]
    ended = timewheel("audit", "batch", "--out", str(tmp_path), "--bootstrap-servers", closed_address, *verification)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "has no counterpart in Spark's Kafka client" in ended.stderr


@pytest.mark.parametrize(
    "option",
    ["no.such.option=1", "security.protocol=other", "ssl.ca.location=/absent.pem", "message.max.bytes=5"],
)
def test_an_option_that_librdkafka_does_not_take_is_a_usage_error(
    timewheel: Run, closed_address: str, option: str
) -> None:
    arguments = ["--kafka", "security.protocol=SSL"] if option.startswith("ssl") else []
    ended = timewheel("topics", "check", "--bootstrap-servers", closed_address, *arguments, "--kafka", option)
    assert ended.exit_code == 2
    assert option.split("=")[0] in ended.stderr
    assert "timewheel: ;" not in ended.stderr, "the sentence goes on in its own line"


def producer_of_cancels(environment: pytest.MonkeyPatch) -> ScheduledProducer:
    """What `cancel` and `reschedule` write with, to a Kafka in memory."""
    kafka = InMemoryKafka()
    for queue in ("wheel", "1"):
        kafka.create_topic(f"SCHEDULE_TOPIC_XXXX-{queue}")
    producer = ScheduledProducer({}, clients=kafka)
    environment.setattr(sidecar.cli.cancel, "scheduled_producer", lambda *_: nullcontext(producer))
    return producer


class AskedTwice:
    """A sidecar whose worker ends while it is asked, and knows the outcome when it is back."""

    def __init__(self, _settings: Settings) -> None:
        decided = {"topic": "SCHEDULE_TOPIC_XXXX-wheel", "outcome": "cancelled"}
        self._answers = [Answer(504, '{"detail": "no answer from worker 1"}'), Answer(200, json.dumps(decided))]

    def __enter__(self) -> "AskedTwice":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, _path: str, _within_s: float) -> Answer:
        return self._answers.pop(0)


def test_a_worker_that_ends_while_it_is_asked_for_an_outcome_is_asked_again(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    producer = producer_of_cancels(environment)
    environment.setattr(sidecar.cli.cancel, "SidecarApi", AskedTwice)
    ended = timewheel("cancel", "--wait", producer.send("orders", "v", delay="1h").encode())
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "cancelled\n", "")


def test_outcomes_are_waited_for_as_long_as_asked_however_many_there_are(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    """The sidecar takes connections and answers none: each receipt would have ten seconds of its own."""
    producer = producer_of_cancels(environment)
    words = [producer.send("orders", "v", delay="1h").encode() for _ in range(5)]
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        environment.setenv("TIMEWHEEL_HTTP_ADDRESS", f"127.0.0.1:{hanging.getsockname()[1]}")
        began_s = time.monotonic()
        ended = timewheel("cancel", "--wait", "--timeout", "300ms", *words)
    assert time.monotonic() - began_s < 5
    assert (ended.exit_code, ended.stdout) == (1, "undecided\n" * 5)
    assert "no sidecar has decided yet on 5 of 5 cancels" in ended.stderr


def test_what_is_not_known_of_a_cancel_is_not_said_and_the_others_are_told(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    producer = producer_of_cancels(environment)
    receipts = [producer.send("orders", "v", delay="1h") for _ in range(3)]
    begin_cancel = producer.begin_cancel

    def begin(receipt: Receipt, on_written: Any) -> None:
        if receipt == receipts[1]:
            on_written(KafkaError(KafkaError._MSG_TIMED_OUT))
        else:
            begin_cancel(receipt, on_written)

    environment.setattr(producer, "begin_cancel", begin)
    ended = timewheel("cancel", *(receipt.encode() for receipt in receipts))
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [receipts[0].id, receipts[2].id]
    assert ended.exit_code == 3
    assert ended.stderr == (
        f"timewheel: {receipts[1].id}: it is not known whether Kafka has taken the cancel, for it has not answered: "
        "Local: Message timed out\n"
    )


def test_a_cancel_whose_outcome_nobody_tells_is_undecided_and_written(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    class NoSidecar(AskedTwice):
        def get(self, _path: str, _within_s: float) -> Answer:
            return Answer(200, "<html>\n  <body>welcome</body>\n</html>")

    producer = producer_of_cancels(environment)
    environment.setattr(sidecar.cli.cancel, "SidecarApi", NoSidecar)
    ended = timewheel("cancel", "--wait", producer.send("orders", "v", delay="1h").encode())
    assert (ended.exit_code, ended.stdout) == (1, "undecided\n")
    (told,) = ended.stderr.splitlines()
    assert told.endswith("that is not a sidecar: it answers 200: <html> <body>welcome</body> </html>")


@pytest.mark.parametrize(
    ("redirection", "command", "told"),
    [
        ("<&-", "cancel -", "stdin is closed; name a file, or let the command read from something"),
        (">&-", "config", "stdout is closed; let it go to a file, or to /dev/null"),
        (">/dev/full", "config", "[Errno 28] No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full_are_told_in_a_sentence(redirection: str, command: str, told: str) -> None:
    program = f"{sys.executable} -m sidecar {command} {redirection}"
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (1 if "full" in redirection else 2, f"timewheel: {told}\n")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("arguments", "code"), [("config --max-delay 90", 2), ("run --max-delay 90", 2)])
def test_where_nothing_can_be_told_the_exit_code_tells(redirection: str, arguments: str, code: int) -> None:
    program = f"{sys.executable} -m sidecar {arguments} {redirection}"
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code


def test_with_stderr_closed_it_runs(closed_address: str, tmp_path: Path) -> None:
    arguments = (
        f"--bootstrap-servers {closed_address} --http-address 127.0.0.1:0 --data-dir {tmp_path} --start-timeout 1s"
    )
    program = f"{sys.executable} -m sidecar run {arguments} 2>&-"
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 3


@pytest.mark.parametrize("option", ["stats_cb=x", "default.topic.config=x"])
def test_an_option_that_only_programs_can_give_is_a_usage_error(
    timewheel: Run, closed_address: str, option: str
) -> None:
    ended = timewheel("topics", "check", "--bootstrap-servers", closed_address, "--kafka", option)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("timewheel: kafka: ")


def receipts_on_stdin(*receipts: Receipt) -> TextIOWrapper:
    return TextIOWrapper(BytesIO("\n".join(map(str, receipts)).encode()))


def test_a_receipt_of_a_level_is_told_and_the_others_are_cancelled(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    producer = producer_of_cancels(environment)
    first = producer.send("orders", "v", delay="1h")
    level = producer.send("orders", "v", level=1)
    last = producer.send("orders", "v", delay="1h")
    environment.setattr(sys, "stdin", receipts_on_stdin(first, level, last))
    ended = timewheel("cancel", "-")
    assert ended.exit_code == 1
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [first.id, last.id]
    (told,) = ended.stderr.splitlines()
    assert told.startswith("timewheel: receipt 2: the message waits on a level topic")


@pytest.mark.parametrize("command", [["cancel"], ["reschedule", "--delay", "2h"]], ids=" ".join)
def test_the_line_that_send_prints_will_do_for_its_receipt(
    timewheel: Run, environment: pytest.MonkeyPatch, command: list[str]
) -> None:
    producer = producer_of_cancels(environment)
    receipt = producer.send("orders", "v", delay="1h")
    ended = timewheel(*command, json.dumps(receipt.to_dict()))
    assert (ended.exit_code, json.loads(ended.stdout)["id"], ended.stderr) == (0, receipt.id, "")
    refused = timewheel(*command, '{"id": "a"}')
    assert refused.exit_code == 2
    assert 'pass the value of "receipt", or the whole line in quotes' in refused.stderr


@pytest.mark.parametrize("command", [["cancel"], ["reschedule", "--delay", "1s"]], ids=" ".join)
def test_a_receipt_of_a_level_alone_is_a_usage_error(timewheel: Run, closed_address: str, command: list[str]) -> None:
    level = Receipt(schedule_topic="level", partition=0, id="b", topic="orders", deliver_ms=5, cancellable=False)
    ended = timewheel(*command, "--bootstrap-servers", closed_address, level.encode())
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("timewheel: the message waits on a level topic")


def test_what_is_no_text_on_stdin_is_no_receipt(timewheel: Run, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    ended = timewheel("cancel", "-")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert 'is not a receipt; pass the value of "receipt"' in ended.stderr


def test_receipts_of_levels_alone_are_a_usage_error(timewheel: Run, closed_address: str) -> None:
    level = Receipt(schedule_topic="level", partition=0, id="b", topic="orders", deliver_ms=5, cancellable=False)
    ended = timewheel("cancel", "--bootstrap-servers", closed_address, level.encode(), level.encode())
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == "timewheel: none of the messages can be cancelled"


def test_what_is_no_text_on_the_command_line_is_sent_as_it_stands(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("SCHEDULE_TOPIC_XXXX-1")
    producer = ScheduledProducer({}, clients=kafka)
    environment.setattr(sidecar.cli.send, "scheduled_producer", lambda *_: nullcontext(producer))
    odd = os.fsdecode(b"a\xff")
    ended = timewheel("send", "--topic", "orders", "--level", "1", "--key", odd, "--header", f"h={odd}", odd)
    assert (ended.exit_code, ended.stderr) == (0, "")
    log = kafka.log("SCHEDULE_TOPIC_XXXX-1", 0)
    assert log is not None
    ((_, key, value, headers, _),) = log.entries
    assert (key, value, dict(headers or [])["h"]) == (b"a\xff", b"a\xff", b"a\xff")


def test_a_name_that_is_no_text_is_a_usage_error(timewheel: Run, environment: pytest.MonkeyPatch) -> None:
    producer = ScheduledProducer({}, clients=InMemoryKafka())
    environment.setattr(sidecar.cli.send, "scheduled_producer", lambda *_: nullcontext(producer))
    ended = timewheel("send", "--topic", os.fsdecode(b"%RETRY%\xff"), "--level", "1", "value")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("timewheel: an argument is not UTF-8 text")


# --- exit code 1: no sidecar ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["pending", "--json"], ["status"], ["switch", "--stop-dequeue"]], ids=" ".join)
def test_a_sidecar_that_does_not_answer_is_named(timewheel: Run, closed_address: str, command: list[str]) -> None:
    ended = timewheel(*command, "--http-address", closed_address)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"timewheel: no sidecar answers at http://{closed_address}")


def test_an_id_that_is_no_text_can_be_asked_for(timewheel: Run, closed_address: str) -> None:
    ended = timewheel("pending", "--id", os.fsdecode(b"\xff"), "--http-address", closed_address)
    assert ended.stderr.startswith("timewheel: no sidecar answers")


class Told:
    """A sidecar that tells of nothing that waits, and of two rejected records."""

    def __init__(self, settings: Settings) -> None:
        pass

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, path: str) -> Answer:
        status = {
            "ready": True,
            "state": "healthy",
            "words": "all is well",
            "action": "",
            "group_id": "shop",
            "stop_enqueue": False,
            "stop_dequeue": False,
            "behind_seconds": 0.0,
            "partitions": {"assigned": 1, "stopped": 0},
            "waiting": {"1": 7},
            "cancels": {},
            "delivered": {"1": 3},
            "rejected": {"1": 2},
        }
        pending = {"total": 0, "messages": [], "partitions": [0], "next": None}
        return Answer(200, json.dumps(pending if "pending" in path else status))


def test_a_message_that_is_not_pending_is_looked_for_elsewhere(timewheel: Run, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(sidecar.cli.ask, "SidecarApi", Told)
    found = "if it was rejected: timewheel dlq show shop --filter"
    assert timewheel("pending", "--id", "a b").stdout.splitlines()[-1].endswith(f"{found} 'id=a b'")
    assert timewheel("pending", "--id", os.fsdecode(b"\xff")).stdout.splitlines()[-1].endswith(f"{found} 'id=\\xff'")
    assert found not in timewheel("pending").stdout
    assert json.loads(timewheel("pending", "--id", "a", "--json").stdout)["total"] == 0


class TooLate(Told):
    """A sidecar with a message that any producer may have asked for, which waits because delivery is stopped."""

    def get(self, path: str) -> Answer:
        due = {"deliver_ms": -(10**18) + 1, "act_ms": -(10**18) + 1}
        message = {"id": "a", "topic": "orders", "receipt": "w", "partition": 0, "offset": 7, **due}
        return Answer(200, json.dumps({"total": 1, "messages": [message], "partitions": [0], "next": None}))


def test_a_message_that_was_due_before_there_were_calendars_is_listed(
    timewheel: Run, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(sidecar.cli.ask, "SidecarApi", TooLate)
    ended = timewheel("pending")
    assert ended.exit_code == 0
    assert "-999999999999999999 ms  orders" in ended.stdout


def test_a_status_says_where_rejected_records_are_seen(timewheel: Run, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(sidecar.cli.ask, "SidecarApi", Told)
    lines = timewheel("status").stdout.splitlines()
    assert "waiting:    7 on level 1" in lines
    assert lines[-1] == "delivered:  3, rejected: 2 (see 'timewheel dlq show shop')"


# --- exit code 3: no Kafka --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["send", "--topic", "orders", "--level", "1", "value"], ["topics", "create"], ["topics", "check", "--json"]],
    ids=" ".join,
)
def test_a_kafka_that_does_not_answer_is_named(
    timewheel: Run, environment: pytest.MonkeyPatch, closed_address: str, command: list[str]
) -> None:
    environment.setattr(topics.reach_kafka, "__defaults__", (0.3,))
    ended = timewheel(*command, "--bootstrap-servers", closed_address)
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert ended.stderr.startswith(f"timewheel: no answer from Kafka at {closed_address} within")


@pytest.mark.parametrize(
    ("code", "exit_code", "told"),
    [
        (KafkaError._TRANSPORT, 3, "timewheel: Kafka answers no more (Local: Broker transport failure)"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, 1, "timewheel: Kafka refuses: Broker: Cluster authorization failed"),
    ],
    ids=["silence", "refusal"],
)
@pytest.mark.parametrize(
    "command", ["topics create", "topics check", "progress show", "roundtrip", "run --data-dir DIRECTORY"]
)
def test_a_kafka_that_answers_once_and_no_more_is_a_sentence(
    timewheel: Run,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    code: int,
    exit_code: int,
    told: str,
) -> None:
    class Admin:
        def list_topics(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(code))

    environment.setattr(topics, "reach_kafka", lambda *_, **__: Admin())
    if command.startswith("run"):
        with pytest.raises(TimewheelError, match=re.escape(told.removeprefix("timewheel: "))) as error:
            topics.prepare_topics(load_settings({"data_dir": str(tmp_path)}))
        assert error.value.exit_code == exit_code
        return
    ended = timewheel(*command.split())
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert ended.stderr.startswith(told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--file", "/absent.jsonl"],
        ["--topic", "a b", "--delay", "1s", "v"],
        ["--topic", "SCHEDULE_TOPIC_XXXX-1", "--delay", "1s", "v"],
        ["--topic", "orders", "--delay", "1s", "--header", "REAL_TOPIC=other", "v"],
        ["--topic", "orders", "--delay", "1s", "--kafka", "no.such.option=1", "v"],
        ["--topic", "orders", "--delay", "400d", "v"],
        ["--topic", "orders", "--at", "2999-01-01T00:00:00Z", "v"],
        ["--topic", "orders", "--delay", "3h", "--max-delay", "2h", "v"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_sent_is_told_before_kafka_is_asked(
    timewheel: Run, environment: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    environment.setattr(topics, "reach_kafka", lambda *_, **__: pytest.fail("Kafka was asked"))
    ended = timewheel("send", *arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")


@pytest.mark.parametrize("command", [["send", "--topic", "orders", "v"], ["reschedule", "no-receipt"]], ids=" ".join)
def test_a_time_that_the_sidecar_would_reject_is_not_written(timewheel: Run, command: list[str]) -> None:
    """Its receipt would be of a dead letter."""
    ended = timewheel(*command, "--delay", "400d")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("timewheel: --delay 400d is further away than max_delay (366d), and")
    assert "give --max-delay" in ended.stderr


def test_a_sidecar_without_kafka_ends_within_15_seconds(
    environment: pytest.MonkeyPatch, closed_address: str, tmp_path: Path
) -> None:
    environment.setenv("TIMEWHEEL_GRUP_ID", "a")

    def run(workers: int) -> tuple[Ended, float]:
        began_s = time.monotonic()
        where = ("--bootstrap-servers", closed_address, "--data-dir", tmp_path / str(workers))
        ended = sidecar_process(*where, "--workers", str(workers), "--log-format", "json")
        return ended, time.monotonic() - began_s

    with ThreadPoolExecutor() as pool:
        for ended, took_s in pool.map(run, (1, 2)):
            assert took_s < 15
            assert ended.exit_code == 3
            assert f"no answer from Kafka at {closed_address}" in ended.stderr.splitlines()[-1]
            unknown = next(line for line in ended.stderr.splitlines() if "names no setting" in line)
            assert json.loads(unknown)["variable"] == "TIMEWHEEL_GRUP_ID"


# --- exit code 4: the data directory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_sidecar_on_a_data_directory_ends_with_4(closed_address: str, tmp_path: Path, workers: str) -> None:
    with DataDir(tmp_path):
        ended = sidecar_process("--bootstrap-servers", closed_address, "--data-dir", tmp_path, "--workers", workers)
    assert ended.exit_code == 4
    assert f"timewheel: data_dir {tmp_path} is in use by another sidecar" in ended.stderr


def test_levels_that_are_longer_than_max_delay_are_told_at_the_start(closed_address: str, tmp_path: Path) -> None:
    where = ("--bootstrap-servers", closed_address, "--data-dir", tmp_path)
    with DataDir(tmp_path):  # so that it ends at once
        ended = sidecar_process(*where, "--levels", "1s 1h 1m 2h", "--max-delay", "30m", "--log-format", "json")
    told = next(line for line in ended.stderr.splitlines() if "levels longer than max_delay" in line)
    assert json.loads(told)["levels"] == [2, 4]


def test_a_quota_below_the_least_is_told_at_the_start(closed_address: str, tmp_path: Path) -> None:
    where = ("--bootstrap-servers", closed_address, "--data-dir", tmp_path, "--log-format", "json")

    def told(*more: str) -> list[tuple[int, int]]:
        with DataDir(tmp_path):  # so that it ends at once
            lines = sidecar_process(*where, *more).stderr.splitlines()
        found = [json.loads(line) for line in lines if "disk_quota_bytes is too small" in line]
        return [(line["asked_bytes"], line["used_bytes"]) for line in found]

    least_bytes = quota_bytes_min(604_800)
    assert told("--disk-quota-bytes", str(least_bytes - 1)) == [(least_bytes - 1, least_bytes)]
    assert told("--disk-quota-bytes", str(least_bytes)) == told() == []


def test_the_same_sidecar_started_twice_ends_with_4_though_its_address_is_taken_too(
    closed_address: str, tmp_path: Path
) -> None:
    with DataDir(tmp_path), socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ended = sidecar_process(
            "--bootstrap-servers", closed_address, "--data-dir", tmp_path, "--http-address", address
        )
    assert (ended.exit_code, "is in use by another sidecar" in ended.stderr) == (4, True)


def test_looking_at_a_directory_at_rest_writes_nothing_into_it(timewheel: Run, tmp_path: Path) -> None:
    (tmp_path / "wheel-0").mkdir()
    assert timewheel("store", "verify", tmp_path).exit_code == 1
    assert list(tmp_path.rglob("*")) == [tmp_path / "wheel-0"]
    with DataDir(tmp_path):
        in_use = [timewheel("store", "verify", directory) for directory in (tmp_path, tmp_path / "wheel-0")]
    assert [(ended.exit_code, "in use by a sidecar" in ended.stderr) for ended in in_use] == [(4, True)] * 2


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_directory_that_holds_no_store_is_no_whole_one(timewheel: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "wheel-house").mkdir()
    ended = timewheel("store", command, tmp_path, "--json")
    assert (ended.exit_code, ended.stdout) == (4, "")
    assert f"no store of Timewheel in {tmp_path}: give the data directory, or one of its wheel-N" in ended.stderr


@pytest.mark.parametrize("given", [".", "wheel-7"])
def test_what_has_been_verified_is_told(timewheel: Run, tmp_path: Path, given: str) -> None:
    store = a_store(tmp_path / "wheel-7", slots_total=60)
    put(store, [record(10_000, offset=0)])
    store.close(1, {})
    ended = timewheel("store", "verify", tmp_path / given)
    assert re.fullmatch(
        r"wheel-7: whole: checkpoint, timerlog of [1-9][0-9,]* bytes and payload of [1-9][0-9,]* bytes\n", ended.stdout
    )
    assert ended.exit_code == 0


def test_a_partition_that_cannot_be_read_is_told_with_the_others(timewheel: Run, tmp_path: Path) -> None:
    a_store(tmp_path / "wheel-7", slots_total=60).close(1, {})
    (tmp_path / "wheel-3" / "checkpoint").mkdir(parents=True)
    told = f"{tmp_path / 'wheel-3'} cannot be read: Is a directory"
    verified = timewheel("store", "verify", tmp_path, "--json")
    assert (verified.exit_code, json.loads(verified.stdout)) == (1, {"wheel-3": [told], "wheel-7": []})
    inspected = timewheel("store", "inspect", tmp_path, "--json")
    found = json.loads(inspected.stdout)
    assert (inspected.exit_code, list(found)) == (4, ["wheel-3", "wheel-7"])
    assert found["wheel-3"]["checkpoint"] is None
    assert "Is a directory" in found["wheel-3"]["error"]
    assert found["wheel-7"]["checkpoint"]


def test_a_damaged_checkpoint_is_told_and_ends_with_1(timewheel: Run, tmp_path: Path) -> None:
    a_store(tmp_path / "wheel-7", slots_total=60).close(1, {})
    checkpoint = tmp_path / "wheel-7" / "checkpoint"
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
    inspected = timewheel("store", "inspect", tmp_path, "--json")
    assert inspected.exit_code == 1
    assert json.loads(inspected.stdout)["wheel-7"]["error"]
    assert timewheel("store", "inspect", tmp_path).exit_code == 1


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("run --config LONG", 2),
        ("config --config LONG", 2),
        ("audit batch --out LONG", 2),
        ("audit report LONG", 1),
    ],
)
def test_a_path_that_cannot_be_looked_at_is_told_in_a_sentence(
    timewheel: Run, tmp_path: Path, command: str, exit_code: int
) -> None:
    """As one under a directory that this user may not enter; root may enter all."""
    ended = timewheel(*command.replace("LONG", f"{tmp_path}/{'a' * 300}").split())
    assert ended.exit_code == exit_code
    assert "File name too long" in ended.stderr


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_directory_that_cannot_be_read_ends_with_4(
    timewheel: Run, environment: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    def denied(_directory: Path) -> list[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    environment.setattr(sidecar.cli.store, "stores", denied)  # root may read everything
    ended = timewheel("store", command, tmp_path)
    assert (ended.exit_code, ended.stdout) == (4, "")
    assert ended.stderr == f"timewheel: {tmp_path} cannot be read: Permission denied\n"


@pytest.mark.parametrize("command", ["store inspect DIR", "store verify DIR", "kafka --port 0 --data-dir DIR"])
def test_whether_a_directory_can_be_read_is_no_question_of_the_command_line(
    timewheel: Run, environment: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    access = os.access
    environment.setattr(os, "access", lambda path, *mode: str(path) != str(tmp_path) and access(path, *mode))
    (tmp_path / "lock").mkdir()  # root may read everything, but not this as a file
    (tmp_path / "not ours").touch()
    ended = timewheel(*command.replace("DIR", str(tmp_path)).split())
    assert (ended.exit_code, ended.stdout) == (4, "")


def test_a_directory_that_the_embedded_kafka_cannot_use_ends_with_4(timewheel: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    assert timewheel("kafka", "--port", "0", "--data-dir", tmp_path / "file").exit_code == 4


def test_a_data_directory_that_is_a_file_ends_with_4(closed_address: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = sidecar_process("--bootstrap-servers", closed_address, "--data-dir", tmp_path / "file")
    assert ended.exit_code == 4
    assert f"timewheel: data_dir {tmp_path}/file cannot be used" in ended.stderr


def test_what_listens_nowhere_needs_no_token_for_the_address_that_an_image_sets(
    timewheel: Run, environment: pytest.MonkeyPatch, closed_address: str
) -> None:
    environment.setenv("TIMEWHEEL_HTTP_ADDRESS", "0.0.0.0:8080")
    environment.setattr(topics.reach_kafka, "__defaults__", (0.3,))
    assert timewheel("topics", "check", "--bootstrap-servers", closed_address).exit_code == 3
    for command in ("run", "config"):
        ended = timewheel(command, "--bootstrap-servers", closed_address)
        assert (ended.exit_code, "needs http_token" in ended.stderr) == (2, True)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_http_address_in_use_ends_with_2(closed_address: str, tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        arguments = ["--bootstrap-servers", closed_address, "--data-dir", tmp_path, "--http-address", address]
        ended = sidecar_process(*arguments, "--workers", workers)
    assert ended.exit_code == 2
    assert f"timewheel: http_address {address} cannot be listened on" in ended.stderr
