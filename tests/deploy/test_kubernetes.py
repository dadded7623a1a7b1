"""The manifests of deploy/kubernetes: valid, complete, and consistent with the service."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.keys import PUBLIC_PATHS
from app.observe.metrics import Metrics
from app.routes import status
from app.settings import Settings, load_settings
from tests.deploy.conftest import check, evaluate, require
from tests.deploy.test_images import variables

ROOT = Path(__file__).parents[2] / "deploy/kubernetes"
FILES = sorted(ROOT.rglob("*.yaml"))
GUIDE = ROOT.parents[1] / "docs/deployment.md"
KUSTOMIZATIONS = [path for path in FILES if path.name == "kustomization.yaml"]

Yaml = dict[str, Any]


def read(path: str | Path) -> Yaml:
    (document,) = yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8"))
    return dict(document)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def patches() -> set[Path]:
    """Files that patch other resources and need not be complete."""
    return {
        path.parent / patch["path"]
        for path in KUSTOMIZATIONS
        for patch in read(path).get("patches", [])
        if "path" in patch
    }


def literals(*kustomizations: Path) -> dict[str, str]:
    """The environment that the kustomizations generate together."""
    return dict(
        literal.split("=", 1)
        for path in kustomizations
        for generator in read(path).get("configMapGenerator", [])
        for literal in generator["literals"]
    )


def values(tree: Any, key: str) -> Iterator[Any]:
    """All values of a key, at any depth."""
    if isinstance(tree, dict):
        yield from ([tree[key]] if key in tree else [])
        for branch in tree.values():
            yield from values(branch, key)
    elif isinstance(tree, list):
        for branch in tree:
            yield from values(branch, key)


DEPLOYMENT = read("base/deployment.yaml")["spec"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_resources_match_the_schema_of_kubernetes() -> None:
    resources = list(check.resources())
    assert len(resources) == 9
    assert not any(check.is_invalid(*resource) for resource in resources)
    (_, broken), *_ = resources
    assert check.is_invalid("broken", broken | {"specs": {}}), "unknown fields are rejected"


def test_every_file_is_referenced_and_every_reference_exists() -> None:
    referenced = set()
    for path in KUSTOMIZATIONS:
        kustomization = read(path)
        for reference in kustomization.get("resources", []) + kustomization.get("components", []):
            target = (path.parent / reference).resolve()
            referenced.add(target / "kustomization.yaml" if target.is_dir() else target)
    referenced |= {path.resolve() for path in patches()}
    # Overlays are applied, and components are added to users' overlays.
    entry_points = {
        path for path in KUSTOMIZATIONS if path.parents[1].name in ("overlays", "components")
    }
    assert referenced <= set(FILES)
    assert set(FILES) - referenced <= entry_points


def test_patches_fit_the_base_and_mount_their_volumes() -> None:
    base = read("base/deployment.yaml")
    for deployment in [base, *map(read, patches())]:
        assert deployment["metadata"]["name"] == base["metadata"]["name"]
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == CONTAINER["name"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}


def test_gpu_pods_have_longer_to_start_and_a_cache_for_kernels() -> None:
    patch = read("overlays/gpu/deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    base = CONTAINER["startupProbe"]
    assert patch["startupProbe"]["failureThreshold"] > base["failureThreshold"]
    (mount,) = patch["volumeMounts"]
    assert mount["mountPath"] == variables("gpu")["CUDA_CACHE_PATH"]


def test_pods_meet_the_restricted_security_standard() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_and_prometheus_use_paths_without_keys() -> None:
    probes = [CONTAINER[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    paths = [probe["httpGet"]["path"] for probe in probes]
    assert paths == ["/health", "/health", "/ready"]
    paths += values(read("components/podmonitor/podmonitor.yaml"), "path")
    paths += values(DEPLOYMENT, "prometheus.io/path")
    assert set(paths) <= {route.path for route in status.probes.routes} & PUBLIC_PATHS


def test_ports_agree_with_the_services_port() -> None:
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == Settings.model_fields["port"].default
    assert list(values(DEPLOYMENT, "prometheus.io/port")) == [str(port["containerPort"])]
    named = [probe["port"] for probe in values(CONTAINER, "httpGet")]
    named += values(read("base/service.yaml"), "targetPort")
    named += [p["port"] for p in next(values(read("base/networkpolicy.yaml"), "ports"))]
    named += [next(values(read("components/podmonitor/podmonitor.yaml"), "port"))]
    assert set(named) == {port["name"]}


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=name_of)
def test_generated_environment_consists_of_valid_settings(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in literals(path).items():
        assert name in {f"LATTEMIX_{field.upper()}" for field in Settings.model_fields}
        monkeypatch.setenv(name, value)
    load_settings()


def test_service_links_are_disabled() -> None:
    """Kubernetes would set LATTEMIX_PORT=tcp://... for a Service named lattemix."""
    assert POD["enableServiceLinks"] is False


def test_termination_grace_period_exceeds_drain_and_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in literals(*KUSTOMIZATIONS).items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    hook_seconds = sum(sleep["seconds"] for sleep in values(CONTAINER.get("lifecycle"), "sleep"))
    needed = hook_seconds + settings.drain_seconds + settings.grace_seconds + 1
    assert POD["terminationGracePeriodSeconds"] >= needed
    assert settings.drain_seconds >= 5, "removing an endpoint takes seconds"


def test_selectors_match_the_pods() -> None:
    selectors = [
        DEPLOYMENT["selector"]["matchLabels"],
        read("base/service.yaml")["spec"]["selector"],
        read("base/poddisruptionbudget.yaml")["spec"]["selector"]["matchLabels"],
        read("base/networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"],
        read("components/podmonitor/podmonitor.yaml")["spec"]["selector"]["matchLabels"],
        *(rule["labelSelector"]["matchLabels"] for rule in POD["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= DEPLOYMENT["template"]["metadata"]["labels"].items()


def test_podmonitor_sets_the_job_that_the_alerts_select() -> None:
    label = read("components/podmonitor/podmonitor.yaml")["spec"]["jobLabel"]
    scrapes = read("../monitoring/prometheus.yml")["scrape_configs"]
    jobs = {scrape["job_name"] for scrape in scrapes}
    assert DEPLOYMENT["template"]["metadata"]["labels"][label] in jobs


def test_prometheusrule_has_the_alerts() -> None:
    rule = (ROOT / "components/prometheusrule/prometheusrule.yaml").read_text(encoding="utf-8")
    alerts = (ROOT / "../monitoring/alerts.yml").read_text(encoding="utf-8")
    header, body = re.split(r"(?m)^spec:\n", rule)
    assert body == re.sub(r"(?m)^(?=.)", "  ", alerts), "run `make alerts`"
    assert yaml.safe_load(rule)["spec"] == yaml.safe_load(alerts)
    assert yaml.safe_load(header)["kind"] == "PrometheusRule"


def test_autoscalers_exclude_each_other_and_scale_the_deployment() -> None:
    hpa = read("components/hpa/horizontalpodautoscaler.yaml")["spec"]
    keda = read("components/keda/scaledobject.yaml")["spec"]
    assert hpa["scaleTargetRef"]["name"] == keda["scaleTargetRef"]["name"] == "lattemix"
    assert next(values(hpa, "container")) == CONTAINER["name"]
    for component in ("hpa", "keda"):  # the second fails: there is nothing left to remove
        (patch,) = read(f"components/{component}/kustomization.yaml")["patches"]
        assert yaml.safe_load(patch["patch"]) == [{"op": "remove", "path": "/spec/replicas"}]
    assert DEPLOYMENT["replicas"] == hpa["minReplicas"] == keda["minReplicaCount"]


def test_keda_query_uses_exposed_metrics() -> None:
    queries = list(values(read("components/keda/scaledobject.yaml"), "query"))
    metrics = set(re.findall(r"lattemix_\w+", " ".join(queries)))
    assert metrics
    service = Metrics()
    service.of_model("tiny")
    assert metrics <= set(re.findall(r"^lattemix_\w+", service.render().decode(), re.MULTILINE))


def trigger() -> dict[str, str]:
    (trigger,) = read("components/keda/scaledobject.yaml")["spec"]["triggers"]
    return dict(trigger["metadata"])


def load(batches: float, tokens: int, seconds: float, queue: float) -> dict[str, str]:
    """Series of a pod: batches per second, tokens and seconds per batch, queued tokens."""
    interval = 15  # seconds between samples
    return {
        "lattemix_queue_tokens": f"{queue}x80",
        "lattemix_batch_tokens_sum": f"0+{batches * tokens * interval}x80",
        "lattemix_batch_seconds_sum": f"0+{batches * seconds * interval}x80",
    }


def of_pods(model: str, series: dict[str, str]) -> dict[str, str]:
    """The series of a model that two pods serve."""
    return {
        f'{metric}{{pod="{pod}",model="{model}"}}': values
        for metric, values in series.items()
        for pod in "ab"
    }


# Series of a pod, queued seconds of work, and concurrent batches, by load.
LOADS = {
    # 16,384 tokens in 0.1 s, one batch at a time, half a batch queued: busy, but keeping up.
    "busy GPU": (load(10, 16_384, 0.1, 8_192), 0.05, 1),
    "overloaded GPU": (load(10, 16_384, 0.1, 65_536), 0.4, 1),
    # 256 tokens in 50 ms on each of two cores: 10,240 tokens per second.
    "busy CPU": (load(32, 256, 0.05, 256), 0.05, 2),
    "overloaded CPU": (load(40, 256, 0.05, 8_192), 1.6, 2),
    # One list of 1,024 sentences per minute, which queues behind itself: more pods would not help.
    "bulk on CPU": (load(1, 256, 0.05, 160), 0.03125, 2),
    "idle": (load(0, 0, 0, 0), 0.0, 1),
}


@pytest.mark.parametrize(("name", "case"), LOADS.items(), ids=LOADS)
def test_keda_adds_pods_only_under_overload(
    name: str, case: tuple[dict[str, str], float, int], tmp_path: Path
) -> None:
    series, queued, parallel = case
    evaluate(trigger()["query"], of_pods("tiny", series), [("{}", 2 * queued)], tmp_path)
    assert (queued > float(trigger()["threshold"]) * parallel) == name.startswith("overloaded")


def test_keda_adds_up_the_seconds_of_models_of_different_speed(tmp_path: Path) -> None:
    slow = load(10, 16_384, 0.1, 65_536)  # 0.4 s of work
    fast = load(100, 16_384, 0.001, 1_638_400)  # 0.1 s
    series = of_pods("slow", slow) | of_pods("fast", fast) | of_pods("idle", load(0, 0, 0, 0))
    evaluate(trigger()["query"], series, [("{}", 2 * (0.4 + 0.1))], tmp_path)


def test_keda_changes_nothing_without_measurements(tmp_path: Path) -> None:
    evaluate(trigger()["query"], {}, [], tmp_path)
    assert trigger()["ignoreNullValues"] == "false"


def test_keda_threshold_is_a_quarter_of_the_maximum_wait() -> None:
    assert float(trigger()["threshold"]) == Settings().max_wait_seconds / 4


def test_documented_query_is_the_shipped_one_with_a_namespace() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    (query,) = re.findall(r"metadata/query\n +value: >-\n(.*?)```", guide, re.DOTALL)
    assert query.count('{namespace="lattemix"}') == trigger()["query"].count("lattemix_")
    assert query.replace('{namespace="lattemix"}', "").split() == trigger()["query"].split()


@pytest.mark.parametrize("overlay", ["cpu", "gpu", "mine"])
def test_overlays_build_to_valid_resources(overlay: str, tmp_path: Path) -> None:
    require("kustomize")
    shutil.copytree(ROOT, tmp_path, dirs_exist_ok=True)
    guide = GUIDE.read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    (tmp_path / "overlays/mine").mkdir()
    (tmp_path / "overlays/mine/kustomization.yaml").write_text(example, encoding="utf-8")
    command = ["kustomize", "build", str(tmp_path / "overlays" / overlay)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    resources = list(yaml.safe_load_all(built))
    assert not any(check.is_invalid(overlay, resource) for resource in resources)
    assert not any("replicas" in resource.get("spec", {}) for resource in resources)


def test_components_for_the_operators_build(tmp_path: Path) -> None:
    require("kustomize")
    shutil.copytree(ROOT, tmp_path, dirs_exist_ok=True)
    components = ("runtimeclass", "prometheusrule", "podmonitor")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../gpu"],
        "components": [f"../../components/{component}" for component in components],
    }
    (tmp_path / "overlays/mine").mkdir()
    path = tmp_path / "overlays/mine/kustomization.yaml"
    path.write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    command = ["kustomize", "build", str(path.parent)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    resources = {resource["kind"]: resource for resource in yaml.safe_load_all(built)}
    assert resources["Deployment"]["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert {"PrometheusRule", "PodMonitor"} <= resources.keys()
