"""Check the deployment files with the tools that read them; part of `make lint`.

The check of a tool that is missing is skipped with a message, or fails if DEPLOY_TOOLS_REQUIRED is
set, as in CI. `make deploy-tools` unpacks them all.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parent.parent
BASE = "docker-compose.yml"
OVERLAYS = (  # each for itself is laid over the base
    "docker-compose.cpu.yml",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("deploy/compose/*.yml")),
)

NGINX = "deploy/nginx/nginx.conf.template"
NGINX_VERSION = (1, 27, 4)  # the first with `resolve` and `keepalive_min_timeout`
PROMETHEUS = "deploy/monitoring/prometheus.yml"
KUBERNETES = "deploy/kubernetes"
CUSTOM = ("keda.sh/", "monitoring.coreos.com/")  # kinds of others: no schema is at hand


class ComposeLoader(yaml.SafeLoader):
    """YAML with the tags by which one compose file takes back what another said."""


for tag in ("!reset", "!override"):
    ComposeLoader.add_constructor(tag, lambda loader, node: loader.construct_sequence(node, True))


def failed(*command: str, stdin: str | None = None, about: str = "") -> bool:
    """Whether the command complains; what it says is shown."""
    outcome = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True)
    if outcome.returncode:
        said = outcome.stdout + outcome.stderr
        print(f"{about or ' '.join(command)}:\n{said}", file=sys.stderr)
    return outcome.returncode != 0


def compose() -> tuple[str, ...]:
    """The command of Docker Compose: the plugin, or the same program by itself; () if neither."""
    for command in (("docker", "compose"), ("docker-compose",)):
        version = (*command, "version")
        if shutil.which(command[0]) and not subprocess.run(version, capture_output=True).returncode:
            return command
    return ()


def nginx_version() -> tuple[int, ...]:
    """The version of nginx, or () if there is none."""
    if not shutil.which("nginx"):
        return ()
    said = subprocess.run(("nginx", "-v"), capture_output=True, text=True).stderr
    return tuple(map(int, re.findall(r"\d+", said)[:3]))


def available(tool: str) -> bool:
    """Whether a tool is on PATH, and new enough."""
    if tool == "docker compose":
        return bool(compose())
    if tool == "nginx":
        return nginx_version() >= NGINX_VERSION
    return shutil.which(tool) is not None


def unchecked(files: str, tool: str) -> int:
    """Report files that a missing tool leaves unchecked; count a failure where it is required."""
    print(f"Not checked, for lack of {tool} (see `make deploy-tools`): {files}")
    return int(bool(os.environ.get("DEPLOY_TOOLS_REQUIRED")))


def check_schemas() -> int:
    """Each compose file against the schema of its format."""
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    failures = 0
    for name in (BASE, *OVERLAYS):
        document = yaml.load((ROOT / name).read_text(encoding="utf-8"), ComposeLoader)
        failures += failed(*command, "-", stdin=json.dumps(document), about=name)
    return failures


def check_stacks() -> int:
    """The compose files as Docker merges them."""
    if not available("docker compose"):
        return unchecked(f"{BASE} with its overlays", "docker compose")
    profiles = ("--profile=train", "--profile=monitoring")
    return sum(
        failed(*compose(), *(f"--file={name}" for name in files), *profiles, "config", "--quiet")
        for files in ((BASE,), *((BASE, overlay) for overlay in OVERLAYS))
    )


def check_nginx() -> int:
    """The template as its image renders it by default, with a scratch directory for /tmp.

    A newer nginx than the image's may accept what the image does not know.
    """
    if not available("nginx"):
        version = ".".join(map(str, NGINX_VERSION))
        return unchecked(NGINX, f"nginx {version} or newer")
    services = yaml.safe_load((ROOT / BASE).read_text(encoding="utf-8"))["services"]
    defaults = {  # of `${NAME:-default}`
        name: value.partition(":-")[2].removesuffix("}")
        for name, value in services["nginx"]["environment"].items()
    }
    template = (ROOT / NGINX).read_text(encoding="utf-8")
    rendered = re.sub(r"\$\{(LATTEMIX_\w+)\}", lambda match: defaults[match[1]], template)
    with tempfile.TemporaryDirectory() as scratch:
        configuration = Path(scratch, "nginx.conf")
        configuration.write_text(rendered.replace("/tmp/", f"{scratch}/"), encoding="utf-8")
        return failed("nginx", "-t", "-q", "-e", "stderr", "-c", str(configuration), about=NGINX)


def check_prometheus() -> int:
    """Prometheus' configuration and its alert rules."""
    if not available("promtool"):
        return unchecked(f"{PROMETHEUS} and its rules", "promtool")
    return failed("promtool", "check", "config", "--lint=all", "--lint-fatal", PROMETHEUS)


def resources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes resource that is complete in its file, and where that is."""
    for kustomization in sorted((ROOT / KUBERNETES).rglob("kustomization.yaml")):
        listed = yaml.safe_load(kustomization.read_text(encoding="utf-8")).get("resources", [])
        for path in (kustomization.parent / name for name in listed):
            if path.is_file():
                where = str(path.relative_to(ROOT))
                yield where, yaml.safe_load(path.read_text(encoding="utf-8"))


def invalid(where: str, resource: dict[str, Any]) -> bool:
    """Whether Kubernetes would refuse a resource of its own; what is wrong is shown."""
    if resource["apiVersion"].startswith(CUSTOM):
        return False
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        print(f"{where}: {error.message}", file=sys.stderr)
        return True
    return False


def check_kubernetes() -> int:
    """The Kubernetes resources, each by itself and as kustomize builds the overlays."""
    failures = sum(invalid(where, resource) for where, resource in resources())
    if not available("kustomize"):
        return failures + unchecked(f"{KUBERNETES}/overlays", "kustomize")
    for overlay in sorted((ROOT / KUBERNETES / "overlays").iterdir()):
        command = ("kustomize", "build", str(overlay))
        if failed(*command):
            failures += 1
            continue
        built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        failures += sum(invalid(overlay.name, each) for each in yaml.safe_load_all(built))
    return failures


CHECKS = (check_schemas, check_stacks, check_nginx, check_prometheus, check_kubernetes)

if __name__ == "__main__":
    sys.exit(sum(check() for check in CHECKS) > 0)
