"""Values: what is wrong is refused, what is there is documented, and the settings are the sidecar's own."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.settings import Settings, default_of, load_settings
from tests.charts import generate
from tests.charts.test_rendering import EVERYTHING
from tests.support.helm import CHART, ROOT, HelmError, one, pod_of, template

REFUSED: dict[str, dict[str, Any]] = {
    "a name that is none": {"replicas": 3},
    "a name within": {"kafka": {"bootstrapservers": "kafka:9092"}},
    "no port": {"kafka": {"bootstrapServers": "kafka"}},
    "no number": {"replicaCount": "three"},
    "negative": {"replicaCount": -1},
    "a probe that succeeds twice": {"livenessProbe": {"successThreshold": 2}},
    "a probe that ends nothing": {"readinessProbe": {"terminationGracePeriodSeconds": 5}},
    "another mode": {"mode": "daemonset"},
    "another mechanism": {"kafka": {"sasl": {"mechanism": "GSSAPI"}}},
    "a setting that is none": {"config": {"level": "1s"}},
    "a setting of another type": {"config": {"partitions": "three"}},
    "a setting out of range": {"config": {"partitions": 0}},
    "a setting that may not be empty": {"config": {"group_id": ""}},
    "a setting that is no duration": {"config": {"max_delay": "30 days"}},
    "a setting of levels that are none": {"config": {"levels": "10s 3x"}},
    "a prefix that no topic may have": {"config": {"topic_prefix": "shop/"}},
    "a template without a place for the group": {"config": {"retry_topic_template": "RETRY"}},
    "a privileged port": {"http": {"port": 80}},
    "an address without its brackets": {"http": {"host": "::"}},
    "an address with a port": {"http": {"host": "0.0.0.0:8080"}},
    "a digest that is none": {"image": {"digest": "latest"}},
    "no quantity": {"persistence": {"size": "ten"}},
    "no quantity of memory": {"resources": {"limits": {"memory": "2 GB"}}},
    "a quantity below zero": {"audit": {"resources": {"requests": {"cpu": -1}}}},
    "a shared volume": {"persistence": {"accessModes": ["ReadOnlyMany"]}},
    "no time to stop in": {"terminationGracePeriodSeconds": 1},
    "a probe's typing error": {"livenessProbe": {"periodseconds": 10}},
    "no schedule": {"audit": {"schedule": "hourly"}},
    "a topic that Kafka refuses": {"tests": {"topic": "a/b"}},
    "no duration": {"tests": {"timeout": "60"}},
    "a path that is no probe": {"sidecar": {"startupPath": "/"}},
    "a login without its secret": {"kafka": {"sasl": {"enabled": True}}},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError, match=r"(?i)schema|needs kafka\.sasl\.existingSecret"):
        template(values)


@pytest.mark.parametrize("name", sorted(generate.DECIDED_BY_THE_CHART))
def test_a_setting_that_the_chart_decides_is_refused_with_where_it_is_decided(name: str) -> None:
    with pytest.raises(HelmError, match=rf"config\.{name} is no value of this chart: \w+") as caught:
        template({"config": {name: "hunter2"}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
    ],
)
def test_a_secret_in_the_clear_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(HelmError, match=rf"kafka\.options holds {name} in the clear: put it into a Secret") as caught:
        template({"kafka": {"options": {name: "hunter2"}}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "LocalHost", "[::1]"])
def test_an_address_that_no_probe_reaches_is_refused(host: str) -> None:
    with pytest.raises(HelmError, match=r"http.host is .*, where no probe reaches it.*leave it at 0\.0\.0\.0"):
        template({"http": {"host": host}})


def test_defaults_look_like_what_the_schema_asks_for() -> None:
    properties = generate.config_schema()["properties"]
    texts = {name: str(default_of(name)) for name, kind in properties.items() if "pattern" in kind}
    assert {"levels", "max_delay", "session_timeout", "roll_window", *generate.NAME_PATTERNS} <= texts.keys()
    assert all(re.search(properties[name]["pattern"], text) for name, text in texts.items())


def test_every_value_has_a_place_in_the_schema_and_no_other_has() -> None:
    schema = json.loads(generate.SCHEMA.read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(value: object, schema: dict[str, Any], path: str) -> None:
        if "properties" not in schema or path == "config":
            return
        assert schema["additionalProperties"] is False, f"{path} takes anything"
        assert isinstance(value, dict)
        assert value.keys() <= schema["properties"].keys(), path
        for name, each in value.items():
            compare(each, schema["properties"][name], f"{path}.{name}".strip("."))

    compare(values, schema, "")
    assert schema["properties"].keys() - values.keys() == {"global", "enabled"}


def test_the_schema_of_the_settings_is_that_of_their_model() -> None:
    assert json.loads(generate.SCHEMA.read_text())["properties"]["config"] == generate.config_schema(), "make charts"
    assert Settings.model_fields.keys() > generate.DECIDED_BY_THE_CHART


def test_the_readme_lists_every_value_with_its_default_and_words() -> None:
    rows = re.findall(r"^\| `(\S+)` \| `(.*?)` \| (.+) \|$", (CHART / "README.md").read_text(), flags=re.MULTILINE)
    listed = {name: (default, words) for name, default, words in rows}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    written = (CHART / "values.yaml").read_text()
    for name, default in _documented(values, written):
        assert name in listed, f"{name} is not in the chart's README: make charts"
        shown, words = listed.pop(name)
        assert json.loads(shown) == default, f"{name} has another default in the chart's README: make charts"
        first_line = words.split(". ")[0][:40]
        assert first_line in " ".join(re.sub(r"\n *# ?", " ", written).split()), f"{name}: make charts"
    assert not listed, f"the chart's README lists what there is not: {sorted(listed)}"


def test_the_version_is_the_packages_wherever_it_is_named() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    application = yaml.safe_load((ROOT / "examples" / "helm" / "shop" / "Chart.yaml").read_text())
    assert chart["appVersion"] == version
    assert application["dependencies"][0]["version"] == chart["version"]
    assert f"ARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()
    for path in ("deploy/example/shop.yaml", "examples/helm/shop/values.yaml"):
        assert f"image: timewheel:{version}\n" in (ROOT / path).read_text(), path


def _documented(values: dict[str, Any], text: str, path: str = "") -> list[tuple[str, Any]]:
    """Names and defaults of all values that have a comment of their own; a map without one is its values."""
    found = []
    for name, value in values.items():
        whole = f"{path}.{name}".strip(".")
        indent = "  " * whole.count(".")
        is_documented = re.search(
            rf"^{indent}# (?!--).*\n{indent}{name}:|^{indent}# --[^\n]*\n(?:{indent}#[^\n]*\n)*{indent}{name}:",
            text,
            re.M,
        )
        if is_documented or not isinstance(value, dict):
            found.append((whole, value))
        else:
            found += _documented(value, text, whole)
    return found


# --- what the sidecar makes of it -------------------------------------------------------------------------------------


def settings_of(values: dict[str, Any], directory: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings that a rendered container starts with: its file, its variables, its arguments."""
    found = template(values)
    container = pod_of(one(found, "StatefulSet"))["spec"]["containers"][0]
    file = directory / "timewheel.yaml"
    text = one(found, "ConfigMap", "rel-timewheel")["data"]["timewheel.yaml"]
    file.write_text(text.replace("/etc/timewheel/kafka-sasl", str(directory)))
    variables = {"POD_NAMESPACE": "apps", "POD_NAME": "rel-timewheel-0", "TIMEWHEEL_HTTP_TOKEN": "token"}
    for entry in container["env"]:
        value = entry.get("value", variables.get(entry["name"], ""))
        monkeypatch.setenv(entry["name"], re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], value))
    flags = dict(argument.removeprefix("--").split("=") for argument in container["args"][1:])
    assert os.environ["TIMEWHEEL_CONFIG"] == "/etc/timewheel/config/timewheel.yaml"
    return load_settings({name.replace("-", "_"): value for name, value in flags.items()}, file)


def test_the_sidecar_takes_the_settings_of_the_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({}, tmp_path, monkeypatch)
    assert (settings.membership, settings.identity) == ("static", "apps.rel-timewheel-0")
    assert (settings.http_address, str(settings.data_dir)) == ("0.0.0.0:8080", "/var/lib/timewheel")
    assert settings.kafka == {}


def test_the_sidecar_listens_where_the_chart_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of({"http": {"host": "[::]"}}, tmp_path, monkeypatch)
    assert (settings.http_address, settings.http_host, settings.http_port) == ("[::]:8080", "::", 8080)


def test_a_secret_may_be_an_option_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pw").write_text("hunter2\n")
    options = {"ssl.key.password": f"${{dir:{tmp_path}:pw}}"}
    settings = settings_of({"kafka": {"options": options}}, tmp_path, monkeypatch)
    assert settings.kafka == {"ssl.key.password": "hunter2"}


def test_logins_come_from_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "username").write_text("scheduler")
    (tmp_path / "password").write_text("hunter2\n")
    settings = settings_of(EVERYTHING, tmp_path, monkeypatch)
    assert settings.kafka == {
        "client.rack": "a",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.password": "hunter2",
        "sasl.username": "scheduler",
        "security.protocol": "SASL_SSL",
        "socket.keepalive.enable": "true",
        "ssl.ca.location": "/etc/timewheel/kafka-ca/ca.crt",
        "ssl.certificate.location": "/etc/timewheel/kafka-client/tls.crt",
        "ssl.key.location": "/etc/timewheel/kafka-client/tls.key",
    }
    assert (settings.group_id, settings.partitions, settings.workers) == ("shop", 6, 2)


@pytest.mark.parametrize(
    ("tls", "sasl", "protocol"),
    [(False, True, "SASL_PLAINTEXT"), (True, False, "SSL"), (True, True, "SASL_SSL"), (False, False, None)],
)
def test_the_security_protocol_follows(tls: bool, sasl: bool, protocol: str | None) -> None:
    kafka = {"tls": {"enabled": tls}, "sasl": {"enabled": sasl, "existingSecret": "login"}}
    rendered = yaml.safe_load(one(template({"kafka": kafka}), "ConfigMap")["data"]["timewheel.yaml"])
    assert rendered.get("kafka", {}).get("security.protocol") == protocol


def test_a_changed_setting_is_a_new_pod_and_an_unchanged_one_is_not() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(pod_of(one(template(values), "StatefulSet"))["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"replicaCount": 5})
    assert checksum({}) != checksum({"config": {"partitions": 3}})


# --- safe by default --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["statefulset", "sidecar"])
def test_every_pod_meets_the_restricted_standard(mode: str) -> None:
    found = [
        each for each in template(EVERYTHING | {"mode": mode}) if each["kind"] in ("StatefulSet", "CronJob", "Pod")
    ]
    assert found
    for workload in found:
        pod = pod_of(workload)["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["runAsUser"] > 10_000
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_another_user_may_write_to_the_files_of_the_one_before() -> None:
    context = pod_of(one(template({}), "StatefulSet"))["spec"]["securityContext"]
    assert (context["fsGroup"], context["fsGroupChangePolicy"]) == (10001, "Always")


def test_no_secret_stands_in_a_config_map_or_a_pod() -> None:
    found = template(EVERYTHING)
    assert not [each for each in found if each["kind"] == "Secret"], "all of them exist already"
    made = one(template(), "Secret")["data"]
    assert len(made["token"]) > 40
    text = json.dumps([each for each in template() if each["kind"] != "Secret"])
    assert made["token"] not in text


def test_policies_select_the_replicas_and_budgets_nobody_else() -> None:
    found = template(EVERYTHING)
    labels = {
        each["kind"]: pod_of(each)["metadata"]["labels"]
        for each in found
        if each["kind"] in ("StatefulSet", "CronJob", "Pod")
    }
    policy = one(found, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() <= each.items() for each in labels.values())
    for kind in ("PodDisruptionBudget", "StatefulSet"):
        selector = one(found, kind)["spec"]["selector"]["matchLabels"]
        assert selector.items() <= labels["StatefulSet"].items()
        assert not selector.items() <= labels["CronJob"].items()
        assert not selector.items() <= labels["Pod"].items()
    service = one(found, "Service", "rel-timewheel")["spec"]["selector"]
    assert service.items() <= labels["StatefulSet"].items()
    assert not service.items() <= labels["Pod"].items()
