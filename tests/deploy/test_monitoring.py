"""Alerts and dashboard: their queries match the metrics that the service exposes."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector

from app.errors import ERRORS
from app.observe import Metrics, Trace
from app.routes import (
    embed,
    explain,
    openai,
    playground,
    rank,
    rerank,
    similarity,
    status,
    tei,
)
from app.settings import Settings
from model_store import Manifest
from tests.deploy.conftest import evaluate, run_promtool

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"


def text(path: str) -> str:
    return (MONITORING / path).read_text(encoding="utf-8")


PROMETHEUS = yaml.safe_load(text("prometheus.yml"))
SCRAPES = {scrape["job_name"]: scrape for scrape in PROMETHEUS["scrape_configs"]}
GROUPS = yaml.safe_load(text("alerts.yml"))["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads(text("grafana/lattemix.json"))
PANELS = {panel["id"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
MODELS = ("default", "fast")


def exposed_samples() -> list[Sample]:
    """All samples that a server with two models exposes after a failed request to each."""
    metrics = Metrics()
    manifest = Manifest.model_construct(precision="fp32", files={})  # the fields that labels need
    for model in MODELS:
        trace = Trace("id", 0.1, 0.1, 0.1, sentences=1, error_type="Backend", model=model)
        metrics.observe_request("/embed", "POST", 424, 0.3, trace)
        metrics.of_model(model).observe_batch(1, 2, 2, 0.1)
        metrics.of_model(model).observe_failures("error", 1)
        metrics.set_info(model, manifest, "cpu")
    families = text_string_to_metric_families(metrics.render().decode())
    return [sample for family in families for sample in family.samples]


OURS = {sample.name: set(sample.labels) for sample in exposed_samples()}
# Targets discovered by annotation have the labels of their pods.
POD_LABELS = {
    re.sub(r"\W", "_", name): value
    for name, value in yaml.safe_load(text("../kubernetes/base/deployment.yaml"))["spec"][
        "template"
    ]["metadata"]["labels"].items()
}
# By dcgm-exporter, one series per GPU of a host.
DCGM = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE")
GPU_METRICS = {name: {"gpu", "UUID", "modelName"} for name in DCGM}
PROMETHEUS_OWN = {"up": set(POD_LABELS), "ALERTS": {"alertname", "alertstate", "severity"}}
TARGET_LABELS = {"job", "instance", "namespace", "pod"}  # the last two in Kubernetes only
LABELS = {
    name: labels | TARGET_LABELS for name, labels in (OURS | PROMETHEUS_OWN | GPU_METRICS).items()
}
ROUTERS = (
    *(
        routes.router
        for routes in (embed, explain, openai, playground, rank, rerank, similarity, status, tei)
    ),
    *(explain.latent_router, openai.models_router, status.probes),
)
VALUES = {
    "path": {route.path for router in ROUTERS for route in router.routes} | {"other"},
    "method": {"GET", "POST"},
    "status": {"200", *(str(kind.status) for kind in ERRORS.values())},
    "reason": set(ERRORS),
    "stage": set(Trace("id").stages()),
    "job": set(SCRAPES),
    "alertname": set(ALERTS),
    "alertstate": {"pending", "firing"},
    **{name: {value} for name, value in POD_LABELS.items()},
}


def queries() -> dict[str, str]:
    """All PromQL queries, by location."""
    by_location = {name: rule["expr"] for name, rule in ALERTS.items()}
    for number, panel in PANELS.items():
        for target in panel["targets"]:
            by_location[f"{number}{target['refId']} {panel['title']}"] = target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        by_location[annotation["name"]] = annotation["target"]["expr"]
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            selector, label = variable["query"].removeprefix("label_values(")[:-1].rsplit(", ", 1)
            by_location[name] = f"count by ({label}) ({selector})"
    return by_location


def substitute(query: str) -> str:
    """Set every Grafana variable of a query to `All`."""
    return re.sub(r"\$\w+", ".*", query.replace("[$__rate_interval]", "[1m]"))


def parse(query: str) -> Expr:
    return promql_parser.parse(substitute(query))


def parts(expression: Expr, kind: type) -> list[Any]:
    """All nodes of a kind in an expression."""
    nodes: list[Expr] = []
    promql_parser.walk(expression, nodes.append)
    return [node for node in nodes if isinstance(node, kind)]


def labels(node: Any) -> set[str]:
    """Labels that the result of an expression can have."""
    if isinstance(node, VectorSelector):
        return LABELS[node.name]
    if isinstance(node, AggregateExpr):
        return set(node.modifier.labels) if node.modifier else set()
    names = ("lhs", "rhs", "expr", "vector_selector")
    children = [getattr(node, name) for name in names if hasattr(node, name)]
    return set[str]().union(*map(labels, [*children, *getattr(node, "args", ())]))


@pytest.mark.parametrize("query", queries().values(), ids=queries())
def test_query_uses_exposed_metrics_and_labels(query: str) -> None:
    expression = parse(query)
    assert parts(expression, VectorSelector)
    for selector in parts(expression, VectorSelector):
        assert selector.name in LABELS
        for matcher in selector.matchers.matchers:
            assert matcher.name in LABELS[selector.name]
            for value in matcher.value.split("|") if matcher.name in VALUES else ():
                assert any(re.fullmatch(value, known) for known in VALUES[matcher.name]), value
    for aggregation in parts(expression, AggregateExpr):
        assert labels(aggregation) <= labels(aggregation.expr)
    for binary in parts(expression, BinaryExpr):
        if binary.modifier and binary.modifier.matching:
            assert set(binary.modifier.matching.labels) <= labels(binary)


# Target labels that replace those of alerts_test.yml, by kind of discovery.
TARGETS = {
    "compose": r'job="lattemix",instance="\1"',
    "annotations": (  # the job of Prometheus' example and of its community chart
        r'job="kubernetes-pods",instance="\1",namespace="prod",pod="lattemix-\1",'
        r'app_kubernetes_io_name="lattemix",pod_template_hash="5c9f7"'
    ),
    "podmonitor": (
        r'job="lattemix",instance="\1",namespace="prod",pod="lattemix-\1",'
        r'container="lattemix",endpoint="http"'
    ),
}


@pytest.mark.parametrize("labels", TARGETS.values(), ids=TARGETS)
def test_alerts_fire_with_every_kind_of_discovery(labels: str, tmp_path: Path) -> None:
    tests, replaced = re.subn(r'job="lattemix",instance="(\w)"', labels, text("alerts_test.yml"))
    assert replaced > 30
    run_promtool(tests.replace("[alerts.yml]", f"[{MONITORING / 'alerts.yml'}]"), tmp_path)


@pytest.mark.parametrize("labels", TARGETS.values(), ids=TARGETS)
def test_panels_show_only_our_replicas_with_every_kind_of_discovery(
    labels: str, tmp_path: Path
) -> None:
    a, b = (re.sub("(.+)", labels, name) for name in "ab")
    other = 'job="kubernetes-pods",instance="other"'
    series = {
        **{f'lattemix_info{{{a},model="{model}"}}': "1x80" for model in MODELS},
        **{f'lattemix_info{{{b},model="{model}"}}': "1x39 stale" for model in MODELS},
        f"process_resident_memory_bytes{{{a}}}": "300x80",
        f"process_resident_memory_bytes{{{other}}}": "900x80",
        f"process_start_time_seconds{{{a}}}": "60x80",
        f"process_start_time_seconds{{{other}}}": "60x80",
        f'process_start_time_seconds{{{other},of="another process"}}': "60x80",
    }
    replicas, memory, table = (PANELS[number]["targets"][0]["expr"] for number in (2, 29, 28))
    expected = {
        replicas: [("{}", 1)],
        memory: [('{instance="a"}', 300)],
        f"sum by (instance, model) ({table})": [
            (f'{{instance="a",model="{model}"}}', 15 * 60 - 60) for model in MODELS
        ],
    }
    for query, values in expected.items():
        evaluate(substitute(query), series, values, tmp_path)


def series_of_two_replicas() -> dict[str, str]:
    """The exposed samples of two replicas, growing by 1 per second."""
    names: dict[str, str] = {}
    for sample in exposed_samples():
        for instance in "ab":
            labels = sample.labels | {"job": "lattemix", "instance": instance}
            pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
            names[f"{sample.name}{{{pairs}}}"] = "0+15x80"
    for metric in DCGM:
        for gpu in "01":
            names[f'{metric}{{job="gpu",instance="a",gpu="{gpu}",UUID="{gpu}"}}'] = "50x80"
    return names


def panel_targets() -> dict[str, tuple[str, set[str]]]:
    """Query and labels in the legend of every panel target; tables show replicas and models."""
    return {
        f"{number}{target['refId']} {panel['title']}": (
            substitute(target["expr"]),
            set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            or ({"instance", "model"} if panel["type"] == "table" else set()),
        )
        for number, panel in PANELS.items()
        for target in panel["targets"]
    }


@pytest.mark.parametrize(("query", "legend"), panel_targets().values(), ids=list(panel_targets()))
def test_legends_are_distinct_with_two_replicas_of_two_models(
    query: str, legend: set[str], tmp_path: Path
) -> None:
    """The query also has a result, and does not fail by matching many series to many."""
    repeated = f"count({query}) - count(count by ({', '.join(sorted(legend))}) ({query}))"
    evaluate(repeated, series_of_two_replicas(), [("{}", 0)], tmp_path)


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
def test_alerts_are_valid_queries_with_two_replicas_of_two_models(
    rule: dict[str, Any], tmp_path: Path
) -> None:
    query = f"count({rule['expr']}) >= bool 0 or vector(1)"
    evaluate(query, series_of_two_replicas(), [("{}", 1)], tmp_path)


def test_totals_are_sums_over_models(tmp_path: Path) -> None:
    sentences, queue, cache = (PANELS[number]["targets"][0]["expr"] for number in (4, 18, 26))
    for query, values in {
        sentences: [("{}", 4)],
        queue: [('{instance="a"}', 2 * 15 * 60), ('{instance="b"}', 2 * 15 * 60)],
        cache: [('{instance="a"}', 2 * 15 * 60), ('{instance="b"}', 2 * 15 * 60)],
    }.items():
        evaluate(substitute(query), series_of_two_replicas(), values, tmp_path)


@pytest.mark.parametrize("query", queries().values(), ids=queries())
def test_only_unreachable_replicas_are_selected_by_job(query: str) -> None:
    """The job depends on the discovery; reachable replicas expose `lattemix_info`."""
    by_job = [
        selector.name
        for selector in parts(parse(query), VectorSelector)
        if "job" in {matcher.name for matcher in selector.matchers.matchers}
    ]
    assert by_job == (["up"] if query == ALERTS["LattemixReplicaDown"]["expr"] else [])


def test_gpus_are_scraped_in_compose() -> None:
    (discovery,) = SCRAPES["gpu"]["dns_sd_configs"]
    services = yaml.safe_load(text("../../docker-compose.yml"))["services"]
    assert set(discovery["names"]) <= services.keys()


def test_every_replica_is_scraped_on_its_port() -> None:
    (discovery,) = SCRAPES["lattemix"]["dns_sd_configs"]
    assert (discovery["names"], discovery["type"]) == (["api"], "A")
    assert discovery["port"] == Settings().port
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_severity_summary_description_and_test(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert len(description) > len(summary) > 0
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= labels(parse(rule["expr"]))
    named = set(re.findall(r'"([^"]+)" on the dashboard', description))
    assert named <= {panel["title"] for panel in PANELS.values()}
    assert f'alertname="{name}"' in text("alerts_test.yml")  # fires in a test


def test_error_alert_counts_server_errors_only() -> None:
    (failed,) = re.findall(r'status=~"(.+?)"', ALERTS["LattemixErrors"]["expr"])
    types = {name for name, kind in ERRORS.items() if re.fullmatch(failed, str(kind.status))}
    assert types == {"Backend", "Internal", "Unhealthy", "Timeout"}
    rejected = f'status="{ERRORS["Overloaded"].status}"'
    assert rejected in ALERTS["LattemixOverloaded"]["expr"]
    (shares,) = (panel for panel in PANELS.values() if panel["title"] == "Failed and rejected")
    assert failed in shares["targets"][0]["expr"]
    assert rejected in shares["targets"][1]["expr"]


def test_backlog_threshold_is_half_the_maximum_wait() -> None:
    half = Settings().max_wait_seconds / 2
    assert ALERTS["LattemixBacklog"]["expr"].endswith(f"> {half:g}")


def test_mentioned_settings_and_alerts_exist() -> None:
    content = text("alerts.yml") + text("grafana/lattemix.json")
    settings = {f"LATTEMIX_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"LATTEMIX_\w+", content)) <= settings
    assert set(re.findall(r"Lattemix\w+", content)) <= set(ALERTS)


def test_dashboard_shows_every_metric() -> None:
    def metric(sample: str) -> str:
        return re.sub("_(bucket|sum|count|created|total)$", "", sample)

    queries = [parse(target["expr"]) for panel in PANELS.values() for target in panel["targets"]]
    shown = {metric(selector.name) for each in queries for selector in parts(each, VectorSelector)}
    assert {metric(name) for name in OURS if name.startswith("lattemix_")} <= shown


@pytest.mark.parametrize("panel", PANELS.values(), ids=lambda panel: panel["title"])
def test_panel_has_description_unit_and_legend(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        legend = target["legendFormat"]
        assert legend or panel["type"] == "table"
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels(parse(target["expr"]))
        assert not re.search(r"\[\d", target["expr"])  # rates use $__rate_interval


def test_dashboard_is_formatted_and_panels_do_not_overlap() -> None:
    assert text("grafana/lattemix.json") == json.dumps(DASHBOARD, indent=2) + "\n"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for position in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        assert position["x"] + position["w"] <= 24
        columns = range(position["x"], position["x"] + position["w"])
        cells = {(x, position["y"] + row) for x in columns for row in range(position["h"])}
        assert not cells & taken
        taken |= cells


def test_variables_and_datasource_are_defined() -> None:
    used = set(re.findall(r"\$\{?([a-z]\w*)", text("grafana/lattemix.json")))
    assert used == set(VARIABLES)
    provisioned = yaml.safe_load(text("grafana/provisioning/datasources/prometheus.yml"))
    (datasource,) = provisioned["datasources"]
    assert VARIABLES["datasource"]["current"]["value"] == datasource["uid"]
    assert datasource["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
