"""Settings: where they come from, what is refused and with which words, what is shown."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from connectors.contract import DelayLevels
from connectors.durations import parse_duration_ms
from connectors.kafka import PROTECTED_OPTIONS
from sidecar.errors import UsageError
from sidecar.settings import MASK, Settings, load_settings, unknown_environment
from sidecar.workers.process import Orders


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without variables of ours, to be filled by the test."""
    for name in list(os.environ):
        if name.upper().startswith("TIMEWHEEL_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """Where the settings file goes."""
    return tmp_path / "timewheel.yaml"


def refused(flags: dict[str, Any], file: Path | None = None, *, listens: bool = False) -> str:
    """The sentence for settings that cannot be used."""
    settings = load_settings(flags, file) if listens else None
    with pytest.raises(UsageError) as caught:
        settings.check_listening() if settings is not None else load_settings(flags, file)
    assert caught.value.exit_code == 2
    return str(caught.value)


# --- sources ----------------------------------------------------------------------------------------------------------


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    environment: pytest.MonkeyPatch, config_file: Path
) -> None:
    assert load_settings().group_id == "timewheel"
    config_file.write_text("group_id: from-file")
    assert load_settings({}, config_file).group_id == "from-file"
    environment.setenv("TIMEWHEEL_GROUP_ID", "from-environment")
    assert load_settings({}, config_file).group_id == "from-environment"
    assert load_settings({"group_id": "from-flag"}, config_file).group_id == "from-flag"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_can_stand_in_the_environment(environment: pytest.MonkeyPatch, name: str) -> None:
    texts = {
        "kafka": '{"client.rack": "a"}',
        "instance_id": "one",
        "membership": "dynamic",
        "data_dir": "/data",
        "schedule_topic_template": "WAIT-{queue}",
        "retry_topic_template": "R-{group}",
        "dead_letter_topic_template": "D-{group}",
        "levels": "2s",
        "guarantee": "at_least_once",
        "http_address": "127.0.0.1:1",
        "http_token": "word",
        "log_format": "json",
        "log_level": "debug",
        "roll_window": "1h",
        "roll_spread": "1h",
    }
    default = getattr(Settings.model_construct(), name)
    kind = Settings.model_fields[name].annotation
    text = texts.get(name)
    if text is None and isinstance(default, bool):
        text = str(not default).lower()
    elif text is None and kind is int:
        is_duration = any(part in name for part in ("delay", "skew", "timeout", "retention"))
        text = "123456ms" if is_duration else "77"
        text = "2048" if name.endswith("_bytes") else text
    environment.setenv(f"TIMEWHEEL_{name.upper()}", text or "other")
    assert getattr(load_settings(), name) != default


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().group_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize("content", ["", "\n", "# nothing yet\n", "---\n", "{}"])
def test_an_empty_file_changes_nothing(config_file: Path, content: str) -> None:
    config_file.write_text(content)
    assert load_settings({}, config_file).model_dump() == load_settings().model_dump()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"- a\n- b\n", "is not a map"),
        (b"timewheel", "is not a map"),
        (b"42", "is not a map"),
        (b"levels: [", "is not valid YAML"),
        (b"a: b: c", "is not valid YAML"),
        (b"group_id: !!python/object:os.system x", "is not valid YAML"),
        (b"group_id: \x01", "is not valid YAML"),
        (b"group_id: \xff\xfe", "utf-8"),
    ],
)
def test_a_file_that_is_no_map_of_settings_is_named(config_file: Path, content: bytes, told: str) -> None:
    config_file.write_bytes(content)
    sentence = refused({}, config_file)
    assert str(config_file) in sentence
    assert told in sentence


def test_no_brokers_and_no_replicas_are_refused() -> None:
    assert "bootstrap_servers" in refused({"bootstrap_servers": ""})
    assert "-1 leaves their number to the broker" in refused({"replication_factor": 0})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused({}, tmp_path / "absent.yaml") == f"--config {tmp_path}/absent.yaml: there is no such file"
    assert refused({}, tmp_path) == f"--config {tmp_path}: is a directory; name a YAML file"


def test_a_file_that_is_no_regular_one_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refused({}, tmp_path / "fifo") == f"--config {tmp_path}/fifo: is no regular file; name a YAML file"


def test_a_file_that_is_nested_without_end_is_named(config_file: Path) -> None:
    config_file.write_text("[" * 3_000)
    assert refused({}, config_file).startswith(f"{config_file}: ")


def test_an_empty_data_dir_is_not_the_current_one() -> None:
    assert refused({"data_dir": ""}) == "data_dir: is empty; name a directory, '.' for the current one"


def test_a_file_that_cannot_be_read_is_named(config_file: Path, environment: pytest.MonkeyPatch) -> None:
    config_file.touch()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(config_file))

    environment.setattr(Path, "open", denied)
    assert "Permission denied" in refused({}, config_file)


@pytest.mark.parametrize("key", ["grup_id", "GROUP_ID_", "1", "group-id"])
def test_a_key_that_names_no_setting_is_named(config_file: Path, key: str) -> None:
    config_file.write_text(f"group_id: a\n{key}: b\n")
    assert refused({}, config_file).startswith(f"{key}: there is no such setting")


def test_every_fault_is_told_at_once(config_file: Path) -> None:
    config_file.write_text("grup_id: a\npartitions: none\nmax_delay: 90\n")
    sentence = refused({"levels": "5x"}, config_file)
    assert [line.split(":")[0] for line in sentence.splitlines()] == ["levels", "partitions", "max_delay", "grup_id"]


def test_what_is_no_number_or_no_truth_is_told_as_it_was_given(config_file: Path) -> None:
    config_file.write_text("workers: three\ncreate_destinations: maybe\n")
    assert refused({}, config_file).splitlines() == [
        "workers: 'three' is not a whole number",
        "create_destinations: 'maybe' is not true or false",
    ]


def test_a_variable_that_names_no_setting_is_reported(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIMEWHEEL_GRUP_ID", "a")
    environment.setenv("TIMEWHEEL_LEVEL", "a")
    environment.setenv("TIMEWHEEL_GROUP_ID", "a")
    environment.setenv("TIMEWHEEL_XYZ", "a")
    environment.setenv("OTHER_GROUP_ID", "a")
    assert dict(unknown_environment()) == {
        "TIMEWHEEL_GRUP_ID": "did you mean TIMEWHEEL_GROUP_ID?",
        "TIMEWHEEL_LEVEL": "did you mean TIMEWHEEL_LEVELS?",
        "TIMEWHEEL_XYZ": "correct or unset it",
    }
    assert load_settings().group_id == "a"


def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_left_alone(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("TIMEWHEEL_SERVICE_HOST", "10.0.0.1")
    environment.setenv("TIMEWHEEL_PORT_8080_TCP", "tcp://10.0.0.1:8080")
    environment.setenv("TIMEWHEEL_PORT", "tcp://10.0.0.1:8080")
    environment.setenv("TIMEWHEEL_API_SERVICE_PORT_HTTP", "8080")  # of the Service timewheel-api
    assert unknown_environment() == []


# --- durations and levels ---------------------------------------------------------------------------------------------

DURATIONS = ["session_timeout", "max_delay", "max_clock_skew", "transaction_timeout", "dead_letter_retention"]


@pytest.mark.parametrize("name", ["session_timeout", "transaction_timeout"])
def test_time_outs_below_what_kafka_takes_are_refused(name: str) -> None:
    assert refused({name: "999ms"}) == f"{name}: 999ms is too short; the least is 1s"


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_is_a_text_with_units(environment: pytest.MonkeyPatch, config_file: Path, name: str) -> None:
    assert getattr(load_settings({name: "1h30m"}), name) == 5_400_000
    config_file.write_text(f"{name}: 2s250ms")
    assert getattr(load_settings({}, config_file), name) == 2_250
    environment.setenv(f"TIMEWHEEL_{name.upper()}", "90s")
    assert getattr(load_settings(), name) == 90_000


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", ["90", 90, 90.0, True, None, "-1s", "1.5h", "soon", "", ["1s"]])
def test_a_duration_is_never_bare(name: str, value: object) -> None:
    sentence = refused({name: value})
    assert sentence.startswith(f"{name}: ")
    assert "is not a duration" in sentence


def test_a_bare_number_in_the_file_is_no_duration(config_file: Path) -> None:
    config_file.write_text("max_delay: 1:30\n")  # YAML's own way to write 90
    assert "max_delay: 90 is not a duration" in refused({}, config_file)


@pytest.mark.parametrize(
    ("levels", "told"), [("1s 5x 3h", "level 2 is '5x'"), ("1s 5", "level 2 is '5'"), ("", "there is no level")]
)
def test_levels_that_cannot_be_read_name_the_token(levels: str, told: str) -> None:
    sentence = refused({"levels": levels})
    assert sentence.startswith("levels: ")
    assert told in sentence


@pytest.mark.parametrize("content", ["levels: 5", "levels: [1s, 5s]", "levels: {delays_ms: [-5]}", "levels:"])
def test_levels_in_the_file_are_one_text(config_file: Path, content: str) -> None:
    config_file.write_text(content)
    assert "is not a text of blank-separated durations" in refused({}, config_file)


def test_levels_are_read_from_anywhere(environment: pytest.MonkeyPatch, config_file: Path) -> None:
    config_file.write_text("levels: 1s 3h\n")
    assert load_settings({}, config_file).levels == DelayLevels((1_000, 10_800_000))
    environment.setenv("TIMEWHEEL_LEVELS", "2s")
    assert load_settings({}, config_file).levels == DelayLevels((2_000,))


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "globs"),
    [("a", ("a",)), ("a,b-*", ("a", "b-*")), (" a , b ,", ("a", "b")), ("", ()), (",", ()), ("*", ("*",))],
)
def test_a_list_is_comma_separated(environment: pytest.MonkeyPatch, text: str, globs: tuple[str, ...]) -> None:
    assert load_settings({"allowed_topics": text}).allowed_topics == globs
    environment.setenv("TIMEWHEEL_DENIED_TOPICS", text)
    assert load_settings().denied_topics == globs


def test_a_list_in_the_file_is_either_kind_of_list(config_file: Path) -> None:
    config_file.write_text("allowed_topics: a,b\ndenied_topics: [c, d-*]\n")
    settings = load_settings({}, config_file)
    assert settings.allowed_topics == ("a", "b")
    assert settings.denied_topics == ("c", "d-*")


@pytest.mark.parametrize(
    ("allowed", "denied", "topic", "verdict"),
    [
        ("*", "", "orders", True),
        ("orders-*", "", "orders-eu", True),
        ("orders-*", "", "orders", False),
        ("orders-*", "", "Orders-eu", False),
        ("orders,bills", "", "bills", True),
        ("*", "secret-*", "secret-1", False),
        ("secret-1", "secret-*", "secret-1", False),
        ("", "", "orders", False),
        ("order?", "", "orders", True),
        ("a.b", "", "axb", False),
    ],
)
def test_a_destination_is_allowed_by_a_glob_and_deny_wins(allowed: str, denied: str, topic: str, verdict: bool) -> None:
    settings = load_settings({"allowed_topics": allowed, "denied_topics": denied})
    assert settings.is_topic_allowed(topic) is verdict


def test_a_group_is_denied_by_its_name_where_a_topic_name_encodes_it() -> None:
    settings = load_settings({"denied_topics": "%RETRY%a/b"})
    assert settings.is_topic_denied(settings.topic_names.retry("a/b"))
    assert not settings.is_topic_denied(settings.topic_names.retry("a/c"))


@pytest.mark.parametrize("denied", ["DLQ-*", "%DLQ%*", "p.DLQ-b*", "%DLQ%billing"])
def test_a_dead_letter_topic_is_denied_by_either_of_its_names(denied: str) -> None:
    settings = load_settings({"denied_topics": denied, "topic_prefix": "p." if denied != "DLQ-*" else ""})
    names = settings.topic_names
    assert settings.is_topic_denied(names.dead_letter("billing"))
    assert not settings.is_topic_denied(names.retry("billing"))


def test_the_shortest_roll_window_is_two_slots() -> None:
    assert load_settings({"roll_window": "2s", "precision_ms": "1000"}).plan.roll_window_ms == 2_000
    with pytest.raises(UsageError, match="it can be 2s to"):
        load_settings({"roll_window": "1s", "precision_ms": "1000"})


def test_groups_are_allowed_by_a_glob() -> None:
    settings = load_settings({"allowed_groups": "orders*,billing"})
    assert [settings.is_group_allowed(group) for group in ("orders-eu", "billing", "billing2")] == [True, True, False]


# --- kafka ------------------------------------------------------------------------------------------------------------


def test_kafka_is_a_map_in_the_file_json_in_the_environment_and_pairs_on_the_command_line(
    environment: pytest.MonkeyPatch, config_file: Path
) -> None:
    config_file.write_text("kafka:\n  security.protocol: SASL_SSL\n  enable.ssl.certificate.verification: false\n")
    from_file = {"security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": "false"}
    assert load_settings({}, config_file).kafka == from_file
    environment.setenv("TIMEWHEEL_KAFKA", '{"linger.ms": 5, "log.connection.close": true}')
    assert load_settings().kafka == {"linger.ms": "5", "log.connection.close": "true"}
    assert load_settings({"kafka": {"client.rack": "a=b"}}).kafka["client.rack"] == "a=b"


def test_kafka_options_are_merged_one_by_one_in_the_order_of_their_sources(
    environment: pytest.MonkeyPatch, config_file: Path
) -> None:
    config_file.write_text("kafka: {sasl.password: file, client.rack: file, linger.ms: 1}\n")
    environment.setenv("TIMEWHEEL_KAFKA", '{"sasl.password": "environment", "client.rack": "environment"}')
    assert load_settings({"kafka": {"client.rack": "flag"}}, config_file).kafka == {
        "sasl.password": "environment",
        "client.rack": "flag",
        "linger.ms": "1",
    }


@pytest.mark.parametrize("text", ["", "a=b", '{"sasl.password": "hunter2"', "security.protocol: SSL"])
def test_kafka_in_the_environment_that_is_no_json_is_refused_without_its_text(
    environment: pytest.MonkeyPatch, text: str
) -> None:
    environment.setenv("TIMEWHEEL_KAFKA", text)
    sentence = refused({})
    assert sentence.startswith("kafka: is not a JSON object")
    assert "hunter2" not in sentence


@pytest.mark.parametrize("text", ["[1]", '"a"', "1"])
def test_kafka_that_is_no_map_is_refused(environment: pytest.MonkeyPatch, text: str) -> None:
    environment.setenv("TIMEWHEEL_KAFKA", text)
    assert refused({}).startswith("kafka: is not ")


@pytest.mark.parametrize("option", ["{password: hunter2}", "[hunter2]", "", "null", "2026-01-01"])
def test_an_option_without_a_plain_value_is_refused_without_its_value(config_file: Path, option: str) -> None:
    config_file.write_text(f"kafka: {{sasl: {option}}}\n")
    sentence = refused({}, config_file)
    assert sentence.startswith("kafka: sasl has no value")
    assert "hunter2" not in sentence


@pytest.mark.parametrize("option", sorted(PROTECTED_OPTIONS))
def test_an_option_that_exactly_once_delivery_hangs_on_is_refused(option: str) -> None:
    sentence = refused({"kafka": {option: "other", "client.rack": "a"}})
    assert sentence.startswith(f"kafka: {option} cannot be set")
    assert "client.rack" not in sentence


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "sasl.password",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "SASL.PASSWORD",
    ],
)
def test_a_secret_option_is_masked(option: str) -> None:
    settings = load_settings({"kafka": {option: "hunter2", "sasl.username": "me"}})
    assert settings.masked()["kafka"] == {option: "**********", "sasl.username": "me"}
    assert settings.kafka[option] == "hunter2"


@pytest.mark.parametrize(
    "option", ["sasl.passwrd", "sasl.pasword", "sasl.pwd", "ssl.key.pme", "api.key", "sasl.secrte"]
)
def test_a_secret_under_a_mistyped_name_is_masked(option: str) -> None:
    assert load_settings({"kafka": {option: "hunter2"}}).masked()["kafka"] == {option: "**********"}


def test_where_a_key_is_found_is_no_secret() -> None:
    places = {"ssl.key.location": "/k", "ssl.keystore.location": "/s", "sasl.kerberos.keytab": "/t"}
    assert load_settings({"kafka": places}).masked()["kafka"] == places


def test_the_token_is_masked_everywhere() -> None:
    settings = load_settings({"http_token": "hunter2"})
    assert settings.masked()["http_token"] == "**********"
    assert "hunter2" not in repr(settings)
    assert settings.http_token is not None
    assert settings.http_token.get_secret_value() == "hunter2"
    assert load_settings().masked()["http_token"] is None


@pytest.mark.parametrize(
    "secret", [{"http_token": MASK}, {"http_token": f" {MASK}"}, {"kafka": {"sasl.password": MASK}}]
)
def test_what_is_shown_in_place_of_a_secret_is_none(secret: dict[str, Any]) -> None:
    """Whoever lets 'timewheel config' write a file would have a token that everybody knows."""
    with pytest.raises(UsageError, match=r"in place of a secret; write the secret"):
        load_settings(secret)


@pytest.mark.parametrize(
    "given", [{"slots_total": 1_000}, {"roll_window": "1h"}, {"slots_total": 5, "precision_ms": 7}]
)
def test_what_is_shown_is_what_holds_and_can_be_read_again(config_file: Path, given: dict[str, Any]) -> None:
    settings = load_settings(given)
    config_file.write_text(yaml.safe_dump(settings.masked()))
    again = load_settings({}, config_file)
    assert again.plan == settings.plan
    assert again.masked() == settings.masked()
    assert settings.told_in_metrics()["roll_window"] == settings.masked()["roll_window"]
    assert parse_duration_ms(settings.masked()["roll_window"]) == settings.plan.roll_window_ms
    assert parse_duration_ms(settings.masked()["roll_spread"]) == settings.plan.spread_ms


@pytest.mark.parametrize("written", ["00123456", "0123", "1_2_3", "12:30:45", "1.10", "0x1F", "yes"])
def test_a_password_that_yaml_reads_as_another_is_to_be_quoted(config_file: Path, written: str) -> None:
    config_file.write_text(f"kafka:\n  sasl.username: me\n  sasl.password: {written}\n")
    with pytest.raises(UsageError, match=r"has a value of sasl\.password .* in line 3; put it in quotes") as told:
        load_settings({}, config_file)
    assert written not in str(told.value)
    for quoted in (f"'{written}'", f'"{written}"', f"!!str {written}"):
        config_file.write_text(f"kafka:\n  sasl.password: {quoted}\n")
        assert load_settings({}, config_file).kafka["sasl.password"] == written


@pytest.mark.parametrize("written", ["123", "0.5", "-1", "true", "a1"])
def test_an_option_that_yaml_reads_as_it_is_written_needs_no_quotes(config_file: Path, written: str) -> None:
    config_file.write_text(f"kafka:\n  client.rack: {written}\n")
    assert load_settings({}, config_file).kafka["client.rack"] == written


def test_a_directory_whose_name_is_no_text_has_an_identity(tmp_path: Path) -> None:
    named = load_settings({"data_dir": Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))})
    assert named.identity != load_settings({"data_dir": tmp_path}).identity


def test_what_is_shown_can_be_written_to_a_file_and_read_again(config_file: Path) -> None:
    settings = load_settings({"levels": "1s 1h30m", "max_delay": "90s", "denied_topics": "a,b", "data_dir": "/data"})
    config_file.write_text(yaml.safe_dump(settings.masked()))
    assert load_settings({}, config_file).model_dump() == settings.model_dump()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("group_id: a\nlevels: 1s\ngroup_id: b\n", "has group_id twice, in lines 1 and 3; keep one of them"),
        ("kafka:\n  client.rack: a\n  client.rack: b\n", "has client.rack twice, in lines 2 and 3"),
        ("kafka: {client.rack: a, client.rack: b}\n", "has client.rack twice, in lines 1 and 1"),
    ],
)
def test_what_a_file_says_twice_is_refused(config_file: Path, text: str, problem: str) -> None:
    config_file.write_text(text)
    assert problem in refused({}, config_file)


@pytest.mark.parametrize(
    "text", ["&a {kafka: *a}", "- group_id: a\n- group_id: b\n", "group_id: [a, a]", "? [a]\n: b\n"]
)
def test_a_file_of_any_shape_is_told_apart_from_one_that_says_a_thing_twice(config_file: Path, text: str) -> None:
    config_file.write_text(text)
    assert "twice" not in refused({}, config_file)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("partitions: yes", "partitions: true is not a number"),
        ("disk_quota_bytes: off", "disk_quota_bytes: false is not a number"),
        ("roll_window: on", "roll_window: True is not a duration"),
    ],
)
def test_a_switch_of_yaml_is_no_number(config_file: Path, line: str, sentence: str) -> None:
    config_file.write_text(line)
    assert refused({}, config_file).startswith(sentence)


# --- http -------------------------------------------------------------------------------------------------------------


def test_a_token_loses_the_line_break_of_the_file_that_it_is_of(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIMEWHEEL_HTTP_TOKEN", "hunter2\n")
    settings = load_settings()
    assert settings.http_token is not None
    assert settings.http_token.get_secret_value() == "hunter2"


@pytest.mark.parametrize("token", ["hunter two", "hünter2", "hunter\n2", "hunter\x002"])
def test_a_token_that_no_request_can_send_is_refused_and_not_shown(token: str) -> None:
    sentence = refused({"http_token": token})
    assert sentence.startswith("http_token: has blanks or characters beyond ASCII")
    assert token[-2:] not in sentence


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_an_empty_token_is_none(token: str) -> None:
    assert load_settings({"http_token": token}).http_token is None
    assert "needs http_token" in refused({"http_token": token, "http_address": "0.0.0.0:8080"}, listens=True)


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "localhost:0", "[::1]:8080", "127.0.0.1:65535"])
def test_a_loopback_address_needs_no_token(address: str) -> None:
    settings = load_settings({"http_address": address})
    assert settings.http_is_local
    assert settings.http_port == int(address.rpartition(":")[2])


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert load_settings({"http_address": "[::1]:80"}).http_host == "::1"


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "timewheel.example:80"])
def test_any_other_address_needs_a_token(environment: pytest.MonkeyPatch, address: str) -> None:
    assert "needs http_token" in refused({"http_address": address}, listens=True)
    environment.setenv("TIMEWHEEL_HTTP_TOKEN", "")
    assert "needs http_token" in refused({"http_address": address}, listens=True)
    assert not load_settings({"http_address": address}).http_is_local, "commands that do not listen need none"
    environment.setenv("TIMEWHEEL_HTTP_TOKEN", "word")
    load_settings({"http_address": address}).check_listening()


@pytest.mark.parametrize(
    "address",
    [
        *("", "8080", ":8080", "localhost", "localhost:", "localhost:http", "127.0.0.1:65536", "127.0.0.1:²"),
        *("foo..bar:80", "a b:80", "http://localhost:80", f"{'a' * 64}:80", "a\n:80"),
    ],
)
def test_an_address_is_host_and_port(address: str) -> None:
    assert refused({"http_address": address}) == f"http_address: '{address}' is not host:port, such as 127.0.0.1:8080"


# --- names and numbers ------------------------------------------------------------------------------------------------


def test_the_prefix_and_the_templates_make_the_topic_names() -> None:
    names = load_settings(
        {"topic_prefix": "eu.", "schedule_topic_template": "WAIT-{queue}", "retry_topic_template": "AGAIN-{group}"}
    ).topic_names
    assert (names.level(2), names.retry("g"), names.dead_letter("g")) == ("eu.WAIT-2", "eu.AGAIN-g", "eu.DLQ-g")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"topic_prefix": "a/"},
            "topic_prefix 'a/' and schedule_topic_template 'SCHEDULE_TOPIC_XXXX-{queue}' make no legal Kafka topic",
        ),
        (
            {"dead_letter_topic_template": "D/{group}"},
            "topic_prefix '' and dead_letter_topic_template 'D/{group}' make no legal Kafka topic name",
        ),
        ({"retry_topic_template": "RETRY"}, "retry_topic_template is 'RETRY', which has to contain {group} once"),
        (
            {"dead_letter_topic_template": "RETRY-{group}"},
            "retry_topic_template 'RETRY-{group}' and dead_letter_topic_template 'RETRY-{group}' make equal names",
        ),
        (
            {"schedule_topic_template": "DLQ-{queue}"},
            "dead_letter_topic_template 'DLQ-{group}' and schedule_topic_template 'DLQ-{queue}' make equal names",
        ),
    ],
)
def test_templates_that_make_no_legal_topics_are_refused_by_their_names(flags: dict[str, str], problem: str) -> None:
    assert problem in refused(flags)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", "0"),
        ("partitions", "many"),
        ("workers", "0"),
        ("workers", "257"),
        ("replication_factor", "-2"),
        ("batch_records", "0"),
        ("batch_bytes", "1023"),
        ("read_ahead_records", "0"),
        ("group_id", ""),
        ("instance_id", "a b"),
        ("instance_id", "a\n"),
        ("membership", "eternal"),
        ("guarantee", "at_most_once"),
        ("log_level", "trace"),
        ("create_topics", "perhaps"),
    ],
)
def test_a_value_beyond_its_range_is_refused_by_name(name: str, value: str) -> None:
    assert refused({name: value}).startswith(f"{name}: ")


def test_every_setting_is_described_and_has_a_default() -> None:
    assert all(field.description and not field.is_required() for field in Settings.model_fields.values())


def test_an_identity_is_legal_lasting_and_of_one_directory(tmp_path: Path) -> None:
    one, again, other = (load_settings({"data_dir": tmp_path / name}).identity for name in ("a", "a", "b"))
    assert one == again != other
    assert load_settings({"instance_id": one}).identity == one


# --- workers ----------------------------------------------------------------------------------------------------------


def test_workers_differ_in_directory_and_identity_and_in_nothing_else(tmp_path: Path) -> None:
    settings = load_settings({"data_dir": tmp_path, "workers": "2", "levels": "1s"})
    workers = [settings.of_worker(number) for number in (1, 2)]
    assert [worker.data_dir for worker in workers] == [tmp_path / "worker-1", tmp_path / "worker-2"]
    identities = [worker.identity for worker in workers]
    assert identities == [f"{settings.identity}-worker-1", f"{settings.identity}-worker-2"]
    assert all(load_settings({"instance_id": identity}) for identity in identities)
    own = {"data_dir", "instance_id", "workers"}
    assert workers[0].model_dump(exclude=own) == workers[1].model_dump(exclude=own) == settings.model_dump(exclude=own)


def test_settings_of_a_file_can_be_told_to_another_process(config_file: Path) -> None:
    config_file.write_text("kafka: {sasl.password: a}\nhttp_token: b\nlevels: 1s 2s\nroll_window: 1h\n")
    settings = load_settings({"workers": "2"}, config_file)
    config_file.unlink()
    told = pickle.loads(pickle.dumps(settings))
    assert (dict(told), told.model_fields_set) == (dict(settings), settings.model_fields_set)


def test_a_worker_is_told_the_settings_as_they_were_resolved(config_file: Path) -> None:
    config_file.write_text(
        "kafka: {sasl.password: a}\nhttp_token: b\nlevels: 1s 2s\ndenied_topics: a,b\nmax_delay: 1h\nroll_window: 1h\n"
    )
    settings = load_settings({"workers": "2"}, config_file).of_worker(1)
    config_file.write_text("levels: 3s\n")
    orders: Orders = pickle.loads(pickle.dumps(Orders(settings, 7)))
    assert dict(orders.settings) == dict(settings)
    assert orders.settings.identity == settings.identity
    assert orders.settings.plan == settings.plan  # roll_spread is not given, and follows from roll_window
