"""What Prometheus and Grafana are told to ask for, beside what the service really exposes."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector

from app.errors import ERRORS
from app.observe import Metrics, Trace
from app.routes import embed, rank, similarity, status
from app.settings import Settings
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


def exposed() -> dict[str, set[str]]:
    """Every sample that the service writes after a request, and its labels."""
    metrics, trace = Metrics(), Trace("id", 0.1, 0.1, 0.1, sentences=1, error_type="Backend")
    metrics.observe_request("/embed", "POST", 424, 0.3, trace)
    metrics.observe_batch(1, 2, 2, 0.1)
    metrics.describe("tiny", "fp32", "cpu", "1.2.3")
    families = text_string_to_metric_families(metrics.render().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


OURS = exposed()
# Pods' labels become labels of their targets where pods are found by annotation.
POD_LABELS = {
    re.sub(r"\W", "_", name): value
    for name, value in yaml.safe_load(text("../kubernetes/base/deployment.yaml"))["spec"][
        "template"
    ]["metadata"]["labels"].items()
}
PROMETHEUS_OWN = {"up": set(POD_LABELS), "ALERTS": {"alertname", "alertstate", "severity"}}
ADDED = {"job", "instance", "namespace", "pod"}  # to every sample; the last two in Kubernetes only
LABELS = {name: labels | ADDED for name, labels in (OURS | PROMETHEUS_OWN).items()}
ROUTERS = (embed.router, rank.router, similarity.router, status.router, status.probes)
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
    """All the PromQL there is, by where it stands."""
    found = {name: rule["expr"] for name, rule in ALERTS.items()}
    for number, panel in PANELS.items():
        for target in panel["targets"]:
            found[f"{number}{target['refId']} {panel['title']}"] = target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        found[annotation["name"]] = annotation["target"]["expr"]
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            selector, label = variable["query"].removeprefix("label_values(")[:-1].rsplit(", ", 1)
            found[name] = f"count by ({label}) ({selector})"
    return found


def parsed(query: str) -> Expr:
    """As Prometheus gets it, with every choice of Grafana's at `All`."""
    return promql_parser.parse(re.sub(r"\$\w+", ".*", query.replace("[$__rate_interval]", "[1m]")))


def parts(expression: Expr, kind: type) -> list[Any]:
    found: list[Expr] = []
    promql_parser.walk(expression, found.append)
    return [node for node in found if isinstance(node, kind)]


def labels(node: Any) -> set[str]:
    """Those that an answer can have."""
    if isinstance(node, VectorSelector):
        return LABELS[node.name]
    if isinstance(node, AggregateExpr):
        return set(node.modifier.labels) if node.modifier else set()
    names = ("lhs", "rhs", "expr", "vector_selector")
    inside = [getattr(node, name) for name in names if hasattr(node, name)]
    return set[str]().union(*map(labels, [*inside, *getattr(node, "args", ())]))


@pytest.mark.parametrize("query", queries().values(), ids=queries())
def test_a_query_asks_for_what_there_is(query: str) -> None:
    expression = parsed(query)
    assert parts(expression, VectorSelector)
    for selector in parts(expression, VectorSelector):
        assert selector.name in LABELS
        for matcher in selector.matchers.matchers:
            assert matcher.name in LABELS[selector.name]
            for value in matcher.value.split("|") if matcher.name in VALUES else ():
                assert any(re.fullmatch(value, known) for known in VALUES[matcher.name]), value
    for each in parts(expression, AggregateExpr):
        assert labels(each) <= labels(each.expr)
    for each in parts(expression, BinaryExpr):
        if each.modifier and each.modifier.matching:
            assert set(each.modifier.matching.labels) <= labels(each)


# Target labels in place of alerts_test.yml's own, by how a replica is scraped.
TARGETS = {
    "compose": r'job="lattemix",instance="\1"',
    "annotations": (  # the jobs of Prometheus' own example and of its community chart
        r'job="kubernetes-pods",instance="\1",namespace="prod",pod="lattemix-\1",'
        r'app_kubernetes_io_name="lattemix",pod_template_hash="5c9f7"'
    ),
    "podmonitor": (
        r'job="lattemix",instance="\1",namespace="prod",pod="lattemix-\1",'
        r'container="lattemix",endpoint="http"'
    ),
}


@pytest.mark.parametrize("labels", TARGETS.values(), ids=TARGETS)
def test_alerts_fire_when_they_should_however_replicas_are_scraped(
    labels: str, tmp_path: Path
) -> None:
    tests, replaced = re.subn(r'job="lattemix",instance="(\w)"', labels, text("alerts_test.yml"))
    assert replaced > 30
    run_promtool(tests.replace("[alerts.yml]", f"[{MONITORING / 'alerts.yml'}]"), tmp_path)


@pytest.mark.parametrize("labels", TARGETS.values(), ids=TARGETS)
def test_panels_show_our_replicas_alone_however_they_are_scraped(
    labels: str, tmp_path: Path
) -> None:
    a, b = (re.sub("(.+)", labels, name) for name in "ab")
    other = 'job="kubernetes-pods",instance="other"'
    series = {
        f"lattemix_info{{{a}}}": "1x80",
        f"lattemix_info{{{b}}}": "1x39 stale",
        f"process_resident_memory_bytes{{{a}}}": "300x80",
        f"process_resident_memory_bytes{{{other}}}": "900x80",
        f"process_start_time_seconds{{{a}}}": "60x80",
        f"process_start_time_seconds{{{other}}}": "60x80",
        f'process_start_time_seconds{{{other},of="another process"}}': "60x80",
    }
    replicas, memory, table = (PANELS[number]["targets"][0]["expr"] for number in (2, 29, 28))
    expected = {
        replicas: ("{}", 1),
        memory: ('{instance="a"}', 300),
        f"sum by (instance) ({table})": ('{instance="a"}', 15 * 60 - 60),
    }
    for query, sample in expected.items():
        evaluate(query.replace("$instance", ".*"), series, [sample], tmp_path)


@pytest.mark.parametrize("query", queries().values(), ids=queries())
def test_only_the_replicas_that_do_not_answer_are_found_by_their_job(query: str) -> None:
    """The job depends on how replicas are scraped; those that answer expose `lattemix_info`."""
    by_job = [
        selector.name
        for selector in parts(parsed(query), VectorSelector)
        if "job" in {matcher.name for matcher in selector.matchers.matchers}
    ]
    assert by_job == (["up"] if query == ALERTS["LattemixReplicaDown"]["expr"] else [])


def test_every_replica_is_scraped_where_it_listens() -> None:
    (discovery,) = SCRAPES["lattemix"]["dns_sd_configs"]
    assert (discovery["names"], discovery["type"]) == (["api"], "A")
    assert discovery["port"] == Settings().port
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_means_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert len(description) > len(summary) > 0
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= labels(parsed(rule["expr"]))
    named = set(re.findall(r'"([^"]+)" on the dashboard', description))
    assert named <= {panel["title"] for panel in PANELS.values()}
    assert f'alertname="{name}"' in text("alerts_test.yml")  # it fires in one of its tests


def test_failures_are_what_is_not_the_callers_fault() -> None:
    (failed,) = re.findall(r'status=~"(.+?)"', ALERTS["LattemixErrors"]["expr"])
    ours = {name for name, kind in ERRORS.items() if re.fullmatch(failed, str(kind.status))}
    assert ours == {"Backend", "Internal", "Unhealthy", "Timeout"}
    refused = f'status="{ERRORS["Overloaded"].status}"'
    assert refused in ALERTS["LattemixOverloaded"]["expr"]
    (shares,) = (panel for panel in PANELS.values() if panel["title"] == "Failed and refused")
    assert failed in shares["targets"][0]["expr"]
    assert refused in shares["targets"][1]["expr"]


def test_a_backlog_is_half_of_what_may_be_waited() -> None:
    half = Settings().max_wait_seconds / 2
    assert ALERTS["LattemixBacklog"]["expr"].endswith(f"> {half:g}")


def test_settings_and_alerts_that_are_named_exist() -> None:
    written = text("alerts.yml") + text("grafana/lattemix.json")
    settings = {f"LATTEMIX_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"LATTEMIX_\w+", written)) <= settings
    assert set(re.findall(r"Lattemix\w+", written)) <= set(ALERTS)


def test_the_dashboard_shows_all_that_we_measure() -> None:
    def metric(sample: str) -> str:
        return re.sub("_(bucket|sum|count|created|total)$", "", sample)

    asked = [parsed(target["expr"]) for panel in PANELS.values() for target in panel["targets"]]
    shown = {metric(selector.name) for each in asked for selector in parts(each, VectorSelector)}
    assert {metric(name) for name in OURS if name.startswith("lattemix_")} <= shown


@pytest.mark.parametrize("panel", PANELS.values(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        legend = target["legendFormat"]
        assert legend or panel["type"] == "table"
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels(parsed(target["expr"]))
        assert not re.search(r"\[\d", target["expr"])  # a rate's window follows the zoom


def test_the_dashboard_is_tidy_and_no_panel_covers_another() -> None:
    assert text("grafana/lattemix.json") == json.dumps(DASHBOARD, indent=2) + "\n"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        assert place["x"] + place["w"] <= 24
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, place["y"] + row) for x in columns for row in range(place["h"])}
        assert not cells & taken
        taken |= cells


def test_variables_and_the_datasource_are_those_that_are_defined() -> None:
    used = set(re.findall(r"\$\{?([a-z]\w*)", text("grafana/lattemix.json")))
    assert used == set(VARIABLES)
    provisioned = yaml.safe_load(text("grafana/provisioning/datasources/prometheus.yml"))
    (datasource,) = provisioned["datasources"]
    assert VARIABLES["datasource"]["current"]["value"] == datasource["uid"]
    assert datasource["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
