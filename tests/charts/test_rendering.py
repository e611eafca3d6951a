"""The chart renders in each mode and with many values, to objects that Kubernetes' own schemas take."""

import re
import shutil
import signal
from pathlib import Path
from typing import Any

import kubernetes_validate
import psutil
import pytest
import yaml

from sidecar.store.timer_store import quota_bytes_min
from tests.charts import generate
from tests.support.helm import CHART, ROOT, HelmError, Object, kinds, objects, one, pod_of, run, shop, template
from tests.support.waiting import wait_until

VERSIONS = ("1.35", "1.36", "1.37")
"""The newest three minor versions of Kubernetes."""

CUSTOM = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""The Prometheus operator's, which Kubernetes has no schema for."""

EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "payments"},
    "commonAnnotations": {"owner": "payments"},
    "image": {"registry": "registry.example.com:5000", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicaCount": 3,
    "kafka": {
        "bootstrapServers": "a.example.com:9093,b.example.com:9093",
        "options": {"client.rack": "${env:ZONE}", "socket.keepalive.enable": True},
        "tls": {"enabled": True, "ca": {"existingSecret": "ca"}, "client": {"existingSecret": "client"}},
        "sasl": {"enabled": True, "existingSecret": "login"},
    },
    "config": {"group_id": "shop", "levels": "1s 5s 10s", "partitions": 6, "trace_headers": True, "workers": 2},
    "http": {"port": 9000, "token": {"existingSecret": "token", "key": "http"}},
    "serviceAccount": {"name": "scheduler", "annotations": {"a": "b"}},
    "persistence": {
        "size": "50Gi",
        "storageClass": "fast",
        "labels": {"l": "1"},
        "annotations": {"a": "1"},
        "emptyDirSizeLimit": "4Gi",
    },
    "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": 1, "memory": "2Gi"}},
    "minReadySeconds": 5,
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
    "podDisruptionBudget": {"maxUnavailable": "34%"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "priorityClassName": "high",
    "podLabels": {"p": "1"},
    "podAnnotations": {"p": "1"},
    "extraEnv": [{"name": "ZONE", "value": "a"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}, {"ports": [{"port": 9093, "protocol": "TCP"}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s", "scrapeTimeout": "5s"},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbookBaseUrl": "https://git.example.com/timewheel/",
    },
    "dashboard": {"enabled": True, "annotations": {"folder": "Kafka"}},
    "audit": {"enabled": True, "args": ["--late-after", "5s"], "existingClaim": "results"},
}

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "sidecar": {"mode": "sidecar"},
    "sidecar with everything": EVERYTHING | {"mode": "sidecar"},
    "no volume": {"persistence": {"enabled": False}},
    "nothing optional": {
        "serviceAccount": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "login in the clear": {"kafka": {"sasl": {"enabled": True, "existingSecret": "login", "mechanism": "PLAIN"}}},
    "encryption by the system's authorities": {"kafka": {"tls": {"enabled": True}}},
    "audit without a claim": {"audit": {"enabled": True}},
    "audit of another user": {"audit": {"enabled": True}, "securityContext": {"runAsUser": 4000}},
    "long names": {"fullnameOverride": "n" * 52, "audit": {"enabled": True}},
    "no replica": {"replicaCount": 0},
    "maintenance": {"maintenance": True},
    "maintenance of a native sidecar": {"mode": "sidecar", "maintenance": True},
}


def assert_valid(found: list[Object]) -> None:
    """Every object, by the schemas of every version."""
    assert found
    for each in found:
        if each["kind"] in CUSTOM:
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CASES[request.param]


def test_objects_are_what_kubernetes_takes(case: dict[str, Any]) -> None:
    assert_valid(template(case))


@pytest.mark.parametrize("name", ["123", "1e3", "on", "null"])
def test_names_that_yaml_takes_for_something_else_are_names(name: str) -> None:
    values = {
        "http": {"token": {"existingSecret": name, "key": name}},
        "kafka": {"sasl": {"enabled": True, "existingSecret": name}},
        "priorityClassName": name,
        "serviceAccount": {"name": name},
        "fullnameOverride": name,
        "nameOverride": name,
        "audit": {"enabled": True},
    }
    found = template(values, release=name, namespace=name)
    assert_valid(found)
    assert {each["metadata"]["namespace"] for each in found} == {name}
    own_secret = template({"http": {"token": {"key": name}}}, release=name)
    assert list(one(own_secret, "Secret")["data"]) == [name]


def test_schemas_refuse_what_is_no_kubernetes() -> None:
    found = template()
    one(found, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["startupProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="startupProb"):
        assert_valid(found)


def test_helm_lints_the_chart_without_a_warning() -> None:
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", CHART)


def test_each_mode_renders_its_own_objects() -> None:
    assert kinds(template()) == {
        "ConfigMap",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "Secret",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    }
    assert kinds(template({"mode": "sidecar"})) == {"ConfigMap", "Pod", "Secret"}
    assert kinds(template(EVERYTHING)) - kinds(template()) == {"CronJob", "ServiceMonitor", "PrometheusRule"}
    assert "PodMonitor" in kinds(template(EVERYTHING | {"mode": "sidecar"}))


def test_the_prometheus_operator_finds_ports_and_rules() -> None:
    found = template(EVERYTHING)
    monitor, service = one(found, "ServiceMonitor"), one(found, "Service", "rel-timewheel")
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"] == "http"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    rules = [rule for group in one(found, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert "TimewheelDown" in {rule["alert"] for rule in rules}
    links = {rule["annotations"]["runbook_url"].partition("docs/")[0] for rule in rules}
    assert links == {"https://git.example.com/timewheel/"}
    dashboard = one(found, "ConfigMap", "rel-timewheel-dashboard")
    assert yaml.safe_load(dashboard["data"]["timewheel.json"])["panels"]


def test_releases_of_one_name_in_two_namespaces_are_two_jobs() -> None:
    """In one job, the replicas that are left hide that the others are gone."""
    own = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    values: dict[str, Any] = {"serviceMonitor": {"enabled": True, "relabelings": [own]}}
    (endpoint,) = one(template(values), "ServiceMonitor")["spec"]["endpoints"]
    job = {
        "sourceLabels": ["__meta_kubernetes_namespace", "__meta_kubernetes_service_name"],
        "separator": "/",
        "targetLabel": "job",
    }
    pod = {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"}
    assert endpoint["relabelings"] == [job, pod, own]
    # The operator makes the job of a PodMonitor so itself.
    (endpoint,) = one(template({**values, "mode": "sidecar"}), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [own]


@pytest.mark.parametrize("length", [45, 46, 51, 52])
def test_the_audits_name_is_one_at_any_length(length: int) -> None:
    name = one(template({"fullnameOverride": "n" * length, "audit": {"enabled": True}}), "CronJob")["metadata"]["name"]
    assert re.fullmatch("n+(-[audit]+)?", name)
    assert len(name) <= 52


def test_an_audit_has_a_name_for_its_user() -> None:
    """Spark's login wants one, and the image's /etc/passwd has 10001 alone."""
    audit: dict[str, Any] = {"audit": {"enabled": True}}
    rendered = template({**audit, "podSecurityContext": {"runAsUser": 4000}, "securityContext": {"runAsUser": None}})
    pod = pod_of(one(rendered, "CronJob"))["spec"]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == "/etc/passwd")
    (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])
    (there,) = (each for each in rendered if each["metadata"]["name"] == volume["configMap"]["name"])
    names = {line.split(":")[2]: line.split(":")[0] for line in there["data"][mount["subPath"]].splitlines()}
    assert names == {"0": "root", "4000": "timewheel"}
    assert "passwd" not in yaml.safe_dump(template(audit))


def test_without_a_place_for_the_runbook_no_alert_links_to_it() -> None:
    rules = one(template({"prometheusRule": {"enabled": True}}), "PrometheusRule")["spec"]["groups"]
    annotations = [rule["annotations"] for group in rules for rule in group["rules"]]
    assert len(annotations) > 20
    assert {frozenset(each) for each in annotations} == {frozenset(["summary", "description"])}


def test_applications_find_replicas_that_are_ready_and_prometheus_every_one() -> None:
    found = template(EVERYTHING)
    every, ready = one(found, "Service", "rel-timewheel"), one(found, "Service", "rel-timewheel-api")
    assert every["spec"]["selector"] == ready["spec"]["selector"]
    assert every["spec"]["publishNotReadyAddresses"]
    assert "publishNotReadyAddresses" not in ready["spec"]
    monitored = one(found, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert not monitored.items() <= ready["metadata"]["labels"].items(), "scraped twice"


def quota_of(values: dict[str, Any]) -> int | None:
    """``disk_quota_bytes`` of the settings file."""
    settings = yaml.safe_load(one(template(values), "ConfigMap", "rel-timewheel")["data"]["timewheel.yaml"])
    quota_bytes: int | None = settings.get("disk_quota_bytes")
    return quota_bytes


def ephemeral_storage_of(values: dict[str, Any], kind: str = "StatefulSet") -> str:
    limit: str = pod_of(one(template(values), kind))["spec"]["containers"][0]["resources"]["limits"][
        "ephemeral-storage"
    ]
    return limit


NO_VOLUME = {"enabled": False}


def test_an_empty_dir_is_never_filled_so_far_that_the_pod_is_evicted() -> None:
    assert quota_of({}) is None, "a volume of its own that is full evicts nobody"
    assert quota_of({"persistence": NO_VOLUME}) == pytest.approx(2 * 2**30 * 9 / 10, abs=9)
    assert quota_of({"mode": "sidecar", "config": {"partitions": 4}}) == pytest.approx(2 * 2**30 * 9 / 40, abs=9)
    assert quota_of({"mode": "sidecar", "persistence": {"emptyDirSizeLimit": "1.5G"}}) == 1_350_000_000
    # A partition that moves from worker to worker leaves its files with each.
    workers = {"partitions": 2, "workers": 3}
    assert quota_of({"mode": "sidecar", "config": workers}) == pytest.approx(2 * 2**30 * 9 / 60, abs=9)
    own = {"disk_quota_bytes": 0}
    assert quota_of({"persistence": NO_VOLUME, "config": own}) == 0
    # What the volumes may take, the container may take.
    assert ephemeral_storage_of({}) == f"{1024 + 64}Mi"
    assert ephemeral_storage_of({"persistence": NO_VOLUME}) == f"{1024 + 64 + 2048}Mi"
    assert ephemeral_storage_of({"persistence": {**NO_VOLUME, "emptyDirSizeLimit": "10Gi"}}) == f"{1024 + 64 + 10240}Mi"
    assert ephemeral_storage_of({"resources": {"limits": {"ephemeral-storage": "7Gi"}}}) == "7Gi"
    assert ephemeral_storage_of({"resources": {"requests": {"ephemeral-storage": "7Gi"}}}) == f"{7 * 1024}Mi"
    assert ephemeral_storage_of({"resources": {"requests": {"ephemeral-storage": 10**9}}}) == f"{1024 + 64}Mi"
    # In an application's pod the limit would be one for all of it.
    (guest,) = [
        each for each in pod_of(one(shop(), "Deployment"))["spec"]["initContainers"] if each["name"] == "timewheel"
    ]
    assert "ephemeral-storage" not in guest["resources"]["limits"]
    audit: dict[str, Any] = {"enabled": True}
    assert ephemeral_storage_of({"audit": audit}, "CronJob") == f"{1024 + 2 * 10240}Mi"
    assert ephemeral_storage_of({"audit": {**audit, "existingClaim": "results"}}, "CronJob") == f"{1024 + 10240}Mi"


def test_an_empty_dir_is_shared_by_as_many_partitions_as_there_are() -> None:
    values: dict[str, Any] = {"mode": "sidecar", "config": {"create_topics": False}}
    with pytest.raises(HelmError, match=r"set config\.partitions to the number that the wheel topic has"):
        template(values)
    for known in ({"partitions": 6}, {"disk_quota_bytes": 10**9}):
        template({**values, "config": {"create_topics": False, **known}})
    template({"config": {"create_topics": False}})  # a volume of its own


@pytest.mark.parametrize(
    ("slots_total", "partitions", "workers"), [(604_800, 12, 1), (2_000_000, 12, 1), (604_800, 4, 3)]
)
def test_an_empty_dir_too_small_for_its_wheels_is_refused_with_the_size_that_is_not(
    slots_total: int, partitions: int, workers: int
) -> None:
    config = {"partitions": partitions, "slots_total": slots_total, "workers": workers}
    values: dict[str, Any] = {"mode": "sidecar", "config": config}
    with pytest.raises(HelmError, match=r"emptyDirSizeLimit is too small.*set it to (\d+Mi) or more") as refused:
        template(values)
    size = re.search(r"(\d+Mi) or more", str(refused.value))
    assert size
    quota_bytes = quota_of({**values, "persistence": {"emptyDirSizeLimit": size[1]}})
    assert quota_bytes
    assert quota_bytes_min(slots_total) <= quota_bytes < quota_bytes_min(slots_total) * 1.01


def test_under_maintenance_nothing_runs_and_everything_is_there() -> None:
    usual, idle = (
        pod_of(one(template({"maintenance": is_on}), "StatefulSet"))["spec"]["containers"][0] for is_on in (False, True)
    )
    # A container's first process hears no signal that it has no handler for.
    process = psutil.Popen(idle["command"])
    wait_until(process.children, "it sleeps")
    (sleeping,) = process.children()
    process.terminate()
    ended_with = process.wait(10)
    sleeping.kill()
    assert ended_with != -signal.SIGTERM, "without a handler of its own"
    assert "args" not in idle
    assert not [name for name in idle if name.endswith("Probe")]
    assert all(usual[name] == idle[name] for name in ("env", "image", "volumeMounts"))


def test_the_runbook_names_volumes_and_processes_as_the_chart_does() -> None:
    text = " ".join((ROOT / "docs" / "runbook.md").read_text().split())
    stateful_set = one(template({"persistence": {"size": "50Gi"}}, release="timewheel"), "StatefulSet")
    name = stateful_set["metadata"]["name"]
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert f"kubectl delete statefulset {name} --cascade=orphan" in text
    assert f"kubectl delete pvc {claim['metadata']['name']}-{name}-0 --wait=false" in text
    (container,) = pod_of(stateful_set)["spec"]["containers"]
    (path,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == claim["metadata"]["name"]]
    assert f"rm -rf {path}/*" in text
    assert f"--target={container['name']} " in text
    for flag in re.findall(r"`kubectl debug (.*?) -- sh`", text)[0].split():
        if flag.startswith("--"):
            assert flag.partition("=")[0] in run("kubectl", "debug", "--help")


def test_an_applications_readiness_is_its_own_unless_told() -> None:
    def sidecar(values: dict[str, Any]) -> Object:
        (container,) = pod_of(one(shop(values), "Deployment"))["spec"]["initContainers"]
        return dict(container)

    assert "readinessProbe" not in sidecar({})
    told = sidecar({"sidecar": {"readinessPath": "/readyz"}})
    assert told["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "timewheel"}


def test_notes_tell_how_to_go_on() -> None:
    def notes(*values: str) -> str:
        settings = [item for value in values for item in ("--set", value)]
        return run("helm", "install", "rel", CHART, "--dry-run=client", "--namespace", "apps", *settings)

    text = notes()
    assert "helm test rel --namespace apps" in text
    assert "kubectl --namespace apps exec rel-timewheel-0 -- timewheel status" in text
    assert "Kafka is spoken to in the clear" in text
    assert (
        "created with 1 partition each (config.partitions), so that of 2 replicas only 1 can work on one level" in text
    )
    assert "maintenance" not in text
    text = notes("config.partitions=2", "maintenance=true", "http.token.existingSecret=mine", r"http.token.key=a\.b")
    assert r"jsonpath='{.data.a\.b}'" in text
    assert "config.partitions" not in text
    assert "maintenance is on" in text
    text = run("helm", "install", "rel", CHART, "--dry-run=client", "--set", "mode=sidecar")
    assert '{{- include "timewheel.sidecar" .Subcharts.timewheel | nindent 8 }}' in text


def test_the_log_of_helm_test_can_be_read_after_it() -> None:
    """Helm 3 reads it after it has deleted what the policy names: `helm test --logs` failed."""
    annotations = one(template(), "Pod")["metadata"]["annotations"]
    assert annotations == {"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation"}


# --- beside an application --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def application() -> list[Object]:
    return shop()


def test_an_applications_chart_includes_the_sidecar(application: list[Object]) -> None:
    assert_valid(application)
    pod = pod_of(one(application, "Deployment"))["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"  # what makes a native sidecar of it
    own = {each["metadata"]["name"] for each in application if each["kind"] in ("ConfigMap", "Secret")}
    mounted = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    assert mounted <= own
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == volumes
    settings = yaml.safe_load(one(application, "ConfigMap")["data"]["timewheel.yaml"])
    assert (settings["membership"], settings["start_timeout"]) == ("dynamic", "0s")
    # None has a CPU or memory request that the scheduler does not see, and the application has the API's token.
    assert pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] in own


def test_the_template_is_refused_beside_a_statefulset(tmp_path: Path) -> None:
    chart = shutil.copytree(ROOT / "examples" / "helm" / "shop", tmp_path / "shop")
    (chart / "charts").mkdir()
    (chart / "charts" / "timewheel").symlink_to(CHART)
    with pytest.raises(HelmError, match=r"wants the value timewheel\.mode to be sidecar"):
        template({"timewheel": {"mode": "statefulset"}}, chart=chart)


# --- without Helm -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", ["statefulset", "example"])
def test_kustomize_builds_what_kubernetes_takes(directory: str) -> None:
    found = [each for each in yaml.safe_load_all(run("kubectl", "kustomize", ROOT / "deploy" / directory)) if each]
    assert_valid(found)


@pytest.mark.parametrize("by", ["replacement", "patch"])
def test_an_overlays_settings_are_new_pods(by: str, tmp_path: Path) -> None:
    """Pods read their settings as they start: those of another ConfigMap are other pods."""

    def build(settings: str) -> tuple[Object, str]:
        overlay: dict[str, Any] = {"resources": ["../base"]}
        if by == "replacement":
            (tmp_path / "overlay" / "mine.yaml").write_text(settings)
            overlay["configMapGenerator"] = [
                {"name": "timewheel", "behavior": "replace", "files": ["timewheel.yaml=mine.yaml"]}
            ]
        else:
            patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "timewheel"}}
            overlay["patches"] = [{"patch": yaml.safe_dump(patch | {"data": {"timewheel.yaml": settings}})}]
        (tmp_path / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        found = objects(run("kubectl", "kustomize", tmp_path / "overlay"))
        (volume,) = [each for each in pod_of(one(found, "StatefulSet"))["spec"]["volumes"] if "configMap" in each]
        return one(found, "ConfigMap"), volume["configMap"]["name"]

    shutil.copytree(ROOT / "deploy" / "statefulset", tmp_path / "base")
    (tmp_path / "overlay").mkdir()
    names = set()
    for settings in ("partitions: 3\n", "partitions: 6\n"):
        config_map, mounted = build(settings)
        assert config_map["data"] == {"timewheel.yaml": settings}
        assert config_map["metadata"]["name"] == mounted
        names.add(mounted)
    assert len(names) == 2


def test_the_component_gives_an_application_what_the_chart_would(application: list[Object]) -> None:
    by_kustomize = list(yaml.safe_load_all(run("kubectl", "kustomize", ROOT / "deploy" / "example")))
    pod = pod_of(one(by_kustomize, "Deployment"))["spec"]
    (patched,), (included,) = pod["initContainers"], pod_of(one(application, "Deployment"))["spec"]["initContainers"]
    token = next(variable for variable in included["env"] if "secretKeyRef" in variable.get("valueFrom", {}))
    token["valueFrom"]["secretKeyRef"]["name"] = "timewheel-http"  # a name of the user's, there
    assert patched == included
    config_map = one(by_kustomize, "ConfigMap")["metadata"]["name"]
    assert {"name": "timewheel-config", "configMap": {"name": config_map}} in pod["volumes"]


@pytest.mark.parametrize("name", generate.COPIED)
def test_the_charts_copy_of_monitoring_is_the_same(name: str) -> None:
    assert (CHART / "files" / name).read_text() == (ROOT / "monitoring" / name).read_text(), "make charts"


def test_what_is_made_from_the_chart_is_up_to_date() -> None:
    assert generate.STATEFULSET.read_text() == generate.statefulset_text(), "make charts"
    assert generate.SETTINGS.read_text() == generate.settings_text(), "make charts"
    assert generate.PATCH.read_text() == generate.patch_text(), "make charts"
