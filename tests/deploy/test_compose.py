"""The compose files and nginx's: hardened, complete, and true to the service behind them."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from app.errors import ERRORS
from app.observe.middleware import _REQUEST_ID
from app.settings import Settings, load_settings
from tests.deploy.conftest import check

ROOT = Path(__file__).parents[2]
Yaml = dict[str, Any]


def read(name: str) -> Yaml:
    return dict(yaml.load((ROOT / name).read_text(encoding="utf-8"), check.ComposeLoader))


BASE = read("docker-compose.yml")
SERVICES: dict[str, Yaml] = BASE["services"]
NGINX = (ROOT / "deploy/nginx/nginx.conf.template").read_text(encoding="utf-8")
# What the images and the reservation of a GPU decide; or what belongs with `stop_grace_period`.
DECIDED = {"host", "port", "device_id", "drain_seconds", "grace_seconds"}


def default(text: str) -> str:
    """`${NAME:-value}` where nobody sets NAME."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def merged(below: Any, above: Any) -> Any:
    """As Docker lays one file over another."""
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {key: merged(below.get(key), value) for key, value in above.items()}
    return below + above if isinstance(below, list) else above


def seconds(text: str) -> float:
    (number,) = re.findall(r"^(\d+)s$", text)
    return float(number)


def directive(name: str) -> str:
    (value,) = set(re.findall(rf"(?m)^\s*{name} ([^;]+);", NGINX))
    return str(value)


@pytest.fixture(autouse=True)
def nobody_sets_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"LATTEMIX_{field.upper()}", raising=False)


def test_the_files_are_compose_files() -> None:
    assert check.check_schemas() == 0


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_hardened_and_its_logs_are_bounded(service: str) -> None:
    is_ = SERVICES[service]
    assert is_["read_only"] is True
    assert is_["cap_drop"] == ["ALL"]
    assert is_["security_opt"] == ["no-new-privileges:true"]
    assert is_["logging"]["options"].keys() == {"max-size", "max-file"}
    assert is_["restart"] == ("no" if service == "train" else "unless-stopped")
    assert "privileged" not in is_
    assert "network_mode" not in is_


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_published_beyond_this_host(service: str) -> None:
    ports = SERVICES[service].get("ports", [])
    assert bool(ports) == (service in ("nginx", "prometheus", "grafana"))
    assert all(default(port).startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_exists(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        if isinstance(volume, str):
            source, *_ = volume.split(":")
            there = (
                (ROOT / source).exists() if source.startswith(".") else source in BASE["volumes"]
            )
            assert there, volume


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"train"}))
def test_what_runs_for_long_is_bounded_in_memory(service: str) -> None:
    assert SERVICES[service]["deploy"]["resources"]["limits"]["memory"]


def test_the_images_models_are_served_and_trained_ones_can_be() -> None:
    assert default(SERVICES["api"]["environment"]["LATTEMIX_STORE"]) == "/models"
    assert SERVICES["api"]["volumes"] == ["store:/store:ro"]
    assert "store:/store" in SERVICES["train"]["volumes"]


def test_keys_are_asked_for_where_a_file_of_them_is_named() -> None:
    api = SERVICES["api"]
    # Without a colon: LATTEMIX_KEYS set but empty names a file without keys, which is refused.
    assert api["environment"]["LATTEMIX_API_KEYS_FILE"] == "${LATTEMIX_KEYS+/run/secrets/keys}"
    assert api["secrets"] == ["keys"]
    assert BASE["secrets"]["keys"] == {"file": "${LATTEMIX_KEYS:-/dev/null}"}


def test_every_setting_of_the_service_can_be_given() -> None:
    passed = {name for name in SERVICES["api"]["environment"] if name.startswith("LATTEMIX_")}
    settable = Settings.model_fields.keys() - DECIDED
    assert passed == {f"LATTEMIX_{field.upper()}" for field in settable}


def test_the_settings_that_nginx_shares_have_the_services_defaults() -> None:
    given = {
        name: default(value)
        for name, value in SERVICES["nginx"]["environment"].items()
        if name.startswith("LATTEMIX_")
    }
    settings = load_settings()
    assert given == {
        "LATTEMIX_MAX_BODY_BYTES": f"{settings.max_body_bytes}",
        "LATTEMIX_REQUEST_TIMEOUT": f"{settings.request_timeout:g}",
    }
    assert set(re.findall(r"\$\{(\w+)\}", NGINX.partition("\n")[2])) == given.keys()


def test_there_is_time_to_stop() -> None:
    settings = load_settings()
    ends = settings.drain_seconds + settings.grace_seconds
    assert seconds(SERVICES["api"]["stop_grace_period"]) > ends
    assert seconds(SERVICES["nginx"]["stop_grace_period"]) > settings.request_timeout + 5
    assert SERVICES["nginx"]["stop_signal"] == "SIGQUIT"
    assert "api" in SERVICES["nginx"]["depends_on"], "so nginx is stopped first"


def test_the_cpu_overlay_takes_back_every_gpu() -> None:
    def reserving(services: dict[str, Yaml]) -> dict[str, Any]:
        return {
            name: service["deploy"]["resources"]["reservations"]["devices"]
            for name, service in services.items()
            if "reservations" in service.get("deploy", {}).get("resources", {})
        }

    overlay = reserving(read("docker-compose.cpu.yml")["services"])
    assert overlay.keys() == reserving(SERVICES).keys() == {"api", "train"}
    assert not any(overlay.values())


def test_another_gpu_answers_to_the_same_name() -> None:
    overlay = read("deploy/compose/gpus.yml")["services"]
    another = overlay["api-second"]
    assert another["networks"]["default"]["aliases"] == ["api"]
    assert "server api:8000 resolve" in NGINX
    (device,) = another["deploy"]["resources"]["reservations"]["devices"]
    (first,) = SERVICES["api"]["deploy"]["resources"]["reservations"]["devices"]
    assert default(device["device_ids"][0]) != default(first["device_ids"][0])
    assert "api-second" in overlay["nginx"]["depends_on"]


def test_another_gpu_serves_with_the_same_settings_and_keys() -> None:
    services: dict[str, Yaml] = {}
    for name in (check.BASE, *check.OVERLAYS):
        for service, own in read(name)["services"].items():
            base = {}
            if "extends" in own:  # a file of its own, whatever is laid over that elsewhere
                base = read(own["extends"]["file"])["services"][own["extends"]["service"]]
            services[service] = merged(services.get(service, base), own)
    for what in ("environment", "secrets", "volumes"):
        assert services["api-second"][what] == services["api"][what]


def test_prometheus_reads_and_keeps_what_is_mounted() -> None:
    flags = dict(flag.split("=") for flag in SERVICES["prometheus"]["command"])
    targets = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {flags["--config.file"], flags["--storage.tsdb.path"]} <= targets


def test_grafana_finds_the_dashboard() -> None:
    provider = read("deploy/monitoring/grafana/provisioning/dashboards/lattemix.yml")
    folder = provider["providers"][0]["options"]["path"]
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{folder}/lattemix.json" in targets


def test_nginx_gives_up_an_idle_connection_before_the_service_does() -> None:
    (idle,) = re.findall(r"keepalive 64;.*?keepalive_timeout (\d+)s;", NGINX, re.DOTALL)
    kept = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert int(idle) < kept


def test_nginx_takes_the_request_ids_that_the_service_takes() -> None:
    (pattern,) = re.findall(r'"~\^(.+)\$"\s+\$http_x_request_id;', NGINX)
    assert pattern.encode() == _REQUEST_ID.pattern


def test_nginx_limits_the_size_of_headers() -> None:
    number, size = directive("large_client_header_buffers").split()
    assert int(number) * int(size.removesuffix("k")) == 64


def test_no_address_has_all_of_nginxs_connections() -> None:
    zone, most = directive("limit_conn").split()
    assert f"zone={zone}:" in directive("limit_conn_zone")
    workers, each = directive("worker_processes"), directive("worker_connections")
    assert 4 * int(most) == int(workers) * int(each)
    assert f"{most} requests from this address" in NGINX


def test_nginx_hides_the_metrics() -> None:
    assert re.search(r"location = /metrics \{\s*return 404;\s*\}", NGINX)


def test_nginx_logs_neither_query_strings_nor_bodies() -> None:
    (logged,) = re.findall(r"log_format json escape=json(.*?);", NGINX, re.DOTALL)
    assert not re.search(r"\$(request|request_uri|args|query_string|request_body)\b", logged)
    line = re.sub(r"\$\w+", "1", "".join(re.findall(r"'(.*?)'", logged)))
    assert json.loads(line).keys() >= {"id", "path", "status", "replica", "replica_status"}
    assert directive("error_log").endswith("crit"), "its other lines hold the query string"


def test_what_nginx_answers_itself_has_the_services_shape() -> None:
    answers = re.findall(r"return (\d+) '(.*)';", NGINX)
    assert len(answers) == 9
    known = {(kind.status, error_type) for error_type, kind in ERRORS.items()}
    known |= {(431, "TooLarge"), (400, "Validation")}  # headers, and what is no HTTP
    for status, body in answers:
        error = json.loads(body)
        assert error.keys() == {"error", "error_type"}
        assert (int(status), error["error_type"]) in known
