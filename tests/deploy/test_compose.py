"""The compose files: hardened, complete, and consistent with the service's settings."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings, load_settings
from tests.deploy.conftest import check, require
from tests.deploy.test_images import variables

ROOT = Path(__file__).parents[2]
Yaml = dict[str, Any]


def read(name: str) -> Yaml:
    return dict(yaml.load((ROOT / name).read_text(encoding="utf-8"), check.ComposeLoader))


BASE = read("docker-compose.yml")
SERVICES: dict[str, Yaml] = BASE["services"]
NGINX = (ROOT / "deploy/nginx/nginx.conf.template").read_text(encoding="utf-8")
# Set by the images or the GPU reservation, or tied to `stop_grace_period`.
FIXED = {"host", "port", "device_id", "drain_seconds", "grace_seconds"}


def default(text: str) -> str:
    """Substitute `${NAME:-value}` by its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def merge(base: Any, overlay: Any) -> Any:
    """Merge two compose files as Docker does."""
    if isinstance(base, dict) and isinstance(overlay, dict):
        return base | {key: merge(base.get(key), value) for key, value in overlay.items()}
    return base + overlay if isinstance(base, list) else overlay


def seconds(text: str) -> float:
    (number,) = re.findall(r"^(\d+)s$", text)
    return float(number)


@pytest.fixture(autouse=True)
def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"LATTEMIX_{field.upper()}", raising=False)


def test_files_match_the_compose_schema() -> None:
    assert check.check_schemas() == 0


@pytest.mark.parametrize("service", SERVICES)
def test_service_is_hardened_and_has_bounded_logs(service: str) -> None:
    content = SERVICES[service]
    assert content["read_only"] is True
    assert content["cap_drop"] == ["ALL"]
    assert content["security_opt"] == ["no-new-privileges:true"]
    assert content["logging"]["options"].keys() == {"max-size", "max-file"}
    assert content["restart"] == ("no" if service == "train" else "unless-stopped")
    assert "privileged" not in content
    assert "network_mode" not in content


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_localhost_only(service: str) -> None:
    ports = SERVICES[service].get("ports", [])
    assert bool(ports) == (service in ("nginx", "prometheus", "grafana"))
    assert all(default(port).startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("service", SERVICES)
def test_mounted_files_and_volumes_exist(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        if isinstance(volume, str):
            source, *_ = volume.split(":")
            is_path = source.startswith(".")
            assert (ROOT / source).exists() if is_path else source in BASE["volumes"], volume


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"train"}))
def test_long_running_services_have_memory_limits(service: str) -> None:
    assert SERVICES[service]["deploy"]["resources"]["limits"]["memory"]


def test_api_can_serve_the_images_models_and_trained_ones() -> None:
    assert default(SERVICES["api"]["environment"]["LATTEMIX_STORE"]) == "/models"
    assert "store:/store:ro" in SERVICES["api"]["volumes"]
    assert "store:/store" in SERVICES["train"]["volumes"]


def test_cudas_cache_is_a_volume() -> None:
    """The root file system is read-only."""
    assert f"cuda-cache:{variables('gpu')['CUDA_CACHE_PATH']}" in SERVICES["api"]["volumes"]


def test_keys_file_is_set_only_with_lattemix_keys() -> None:
    api = SERVICES["api"]
    # Without a colon: if LATTEMIX_KEYS is set but empty, the service rejects the empty file.
    assert api["environment"]["LATTEMIX_API_KEYS_FILE"] == "${LATTEMIX_KEYS+/run/secrets/keys}"
    assert api["secrets"] == ["keys"]
    assert BASE["secrets"]["keys"] == {"file": "${LATTEMIX_KEYS:-/dev/null}"}


def test_every_setting_is_passed_to_the_service() -> None:
    passed = {name for name in SERVICES["api"]["environment"] if name.startswith("LATTEMIX_")}
    settable = Settings.model_fields.keys() - FIXED
    assert passed == {f"LATTEMIX_{field.upper()}" for field in settable}


def test_nginx_has_the_services_defaults() -> None:
    environment = {
        name: default(value)
        for name, value in SERVICES["nginx"]["environment"].items()
        if name.startswith("LATTEMIX_")
    }
    settings = load_settings()
    assert environment == {
        "LATTEMIX_MAX_BODY_BYTES": f"{settings.max_body_bytes}",
        "LATTEMIX_REQUEST_TIMEOUT": f"{settings.request_timeout:g}",
    }
    assert set(re.findall(r"\$\{(\w+)\}", NGINX.partition("\n")[2])) == environment.keys()


def test_stop_grace_periods_exceed_drain_and_grace() -> None:
    settings = load_settings()
    needed = settings.drain_seconds + settings.grace_seconds + 2  # and the batch in progress
    assert seconds(SERVICES["api"]["stop_grace_period"]) > needed
    assert seconds(SERVICES["nginx"]["stop_grace_period"]) > settings.request_timeout + 5
    assert SERVICES["nginx"]["stop_signal"] == "SIGQUIT"
    assert "api" in SERVICES["nginx"]["depends_on"], "nginx must be stopped first"


def test_cpu_overlay_removes_every_gpu_reservation() -> None:
    def devices(services: dict[str, Yaml]) -> dict[str, Any]:
        return {
            name: service["deploy"]["resources"]["reservations"]["devices"]
            for name, service in services.items()
            if "reservations" in service.get("deploy", {}).get("resources", {})
        }

    services = read("docker-compose.cpu.yml")["services"]
    disabled = {name for name, service in services.items() if "profiles" in service}
    assert disabled == {"dcgm-exporter"}
    assert devices(services).keys() == devices(SERVICES).keys() - disabled == {"api", "train"}
    assert not any(devices(services).values())


def test_second_gpu_has_the_same_network_alias() -> None:
    overlay = read("deploy/compose/gpus.yml")["services"]
    second = overlay["api-second"]
    assert second["networks"]["default"]["aliases"] == ["api"]
    assert "server api:8000 resolve" in NGINX
    (device,) = second["deploy"]["resources"]["reservations"]["devices"]
    (first,) = SERVICES["api"]["deploy"]["resources"]["reservations"]["devices"]
    assert default(device["device_ids"][0]) != default(first["device_ids"][0])
    assert "api-second" in overlay["nginx"]["depends_on"]


def test_second_gpu_has_the_same_settings_and_keys() -> None:
    services: dict[str, Yaml] = {}
    for name in (check.BASE, *check.OVERLAYS):
        for service, content in read(name)["services"].items():
            base = {}
            if extends := content.get("extends"):  # the file alone, without overlays
                base = read(extends["file"])["services"][extends["service"]]
            services[service] = merge(services.get(service, base), content)
    for field in ("environment", "secrets", "volumes"):
        assert services["api-second"][field] == services["api"][field]


@pytest.mark.parametrize(("overlay", "gpus"), [((), True), (("docker-compose.cpu.yml",), False)])
def test_gpu_metrics_are_exported_on_gpu_hosts_only(overlay: tuple[str, ...], gpus: bool) -> None:
    require("docker compose")
    files = [f"--file={ROOT / name}" for name in (check.BASE, *overlay)]
    command = [*check.compose(), *files, "--profile=monitoring", "config", "--services"]
    services = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"prometheus", "grafana"} <= set(services)
    assert ("dcgm-exporter" in services) == gpus


def test_prometheus_paths_are_mounted() -> None:
    flags = dict(flag.split("=") for flag in SERVICES["prometheus"]["command"])
    targets = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {flags["--config.file"], flags["--storage.tsdb.path"]} <= targets


def test_grafana_dashboard_is_mounted_where_it_is_provisioned() -> None:
    provider = read("deploy/monitoring/grafana/provisioning/dashboards/lattemix.yml")
    folder = provider["providers"][0]["options"]["path"]
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{folder}/lattemix.json" in targets
