"""Validate deployment files and GitHub's with the tools that read them; part of `make lint`.

A check whose tool is missing is skipped with a message, or fails if DEPLOY_TOOLS_REQUIRED is set,
as in CI. `make deploy-tools` unpacks all tools.
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
OVERLAYS = (  # each is merged into the base on its own
    "docker-compose.cpu.yml",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("deploy/compose/*.yml")),
)

NGINX = "deploy/nginx/nginx.conf.template"
NGINX_VERSION = (1, 27, 4)  # the first with `resolve` and `keepalive_min_timeout`
PROMETHEUS = "deploy/monitoring/prometheus.yml"
KUBERNETES = "deploy/kubernetes"
# Files that GitHub reads, by schema of check-jsonschema.
GITHUB_SCHEMAS = {
    "github-workflows": ".github/workflows/*.yml",
    "dependabot": ".github/dependabot.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "citation-file-format": "CITATION.cff",
}
# kubernetes_validate has no schemas of custom resources.
CUSTOM_API_GROUPS = ("keda.sh/", "monitoring.coreos.com/")


class ComposeLoader(yaml.SafeLoader):
    """YAML with the tags by which one compose file overrides another."""


for tag in ("!reset", "!override"):
    ComposeLoader.add_constructor(tag, lambda loader, node: loader.construct_sequence(node, True))


def run_failed(*command: str, stdin: str | None = None, label: str = "") -> bool:
    """Run a command; if it fails, print its output and return True."""
    outcome = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True)
    if outcome.returncode:
        output = outcome.stdout + outcome.stderr
        print(f"{label or ' '.join(command)}:\n{output}", file=sys.stderr)
    return outcome.returncode != 0


def compose() -> tuple[str, ...]:
    """The command of Docker Compose, as a plugin or a program; () if there is none."""
    for command in (("docker", "compose"), ("docker-compose",)):
        version = (*command, "version")
        if shutil.which(command[0]) and not subprocess.run(version, capture_output=True).returncode:
            return command
    return ()


def nginx_version() -> tuple[int, ...]:
    """The version of nginx, or () if there is none."""
    if not shutil.which("nginx"):
        return ()
    output = subprocess.run(("nginx", "-v"), capture_output=True, text=True).stderr
    return tuple(map(int, re.findall(r"\d+", output)[:3]))


def available(tool: str) -> bool:
    """Whether a tool is on PATH and new enough."""
    if tool == "docker compose":
        return bool(compose())
    if tool == "nginx":
        return nginx_version() >= NGINX_VERSION
    return shutil.which(tool) is not None


def skip(files: str, tool: str) -> int:
    """Report files that are not checked; return 1 if the missing tool is required, else 0."""
    print(f"Not checked, {tool} is missing (see `make deploy-tools`): {files}")
    return int(bool(os.environ.get("DEPLOY_TOOLS_REQUIRED")))


def violates_schema(path: Path, schema: str) -> bool:
    """Whether a YAML file violates one of check-jsonschema's schemas; the error is printed."""
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    document = yaml.load(path.read_text(encoding="utf-8"), ComposeLoader)
    # YAML 1.1 reads the key `on` of workflows as true, and a date as no string.
    text = json.dumps(
        {"on" if key is True else key: document[key] for key in document}, default=str
    )
    return run_failed(*command, "-", stdin=text, label=str(path.relative_to(ROOT)))


def check_schemas() -> int:
    """Validate each compose file against the schema of its format."""
    return sum(violates_schema(ROOT / name, "compose-spec") for name in (BASE, *OVERLAYS))


def check_github() -> int:
    """Validate workflows, Dependabot's configuration, issue forms and the citation file."""
    return sum(
        violates_schema(path, schema)
        for schema, pattern in GITHUB_SCHEMAS.items()
        for path in sorted(ROOT.glob(pattern))
    )


def check_stacks() -> int:
    """Validate the compose files as Docker merges them."""
    if not available("docker compose"):
        return skip(f"{BASE} with its overlays", "docker compose")
    profiles = ("--profile=train", "--profile=monitoring")
    return sum(
        run_failed(
            *compose(), *(f"--file={name}" for name in files), *profiles, "config", "--quiet"
        )
        for files in ((BASE,), *((BASE, overlay) for overlay in OVERLAYS))
    )


def render_nginx(scratch: Path) -> Path:
    """Render the template with compose's defaults, with a scratch directory for /tmp."""
    services = yaml.safe_load((ROOT / BASE).read_text(encoding="utf-8"))["services"]
    defaults = {  # of `${NAME:-default}`
        name: value.partition(":-")[2].removesuffix("}")
        for name, value in services["nginx"]["environment"].items()
    }
    template = (ROOT / NGINX).read_text(encoding="utf-8")
    rendered = re.sub(r"\$\{(LATTEMIX_\w+)\}", lambda match: defaults[match[1]], template)
    configuration = scratch / "nginx.conf"
    configuration.write_text(rendered.replace("/tmp/", f"{scratch}/"), encoding="utf-8")
    return configuration


def check_nginx() -> int:
    """Validate nginx's configuration.

    A newer nginx than the image's may accept directives that the image's does not know.
    """
    if not available("nginx"):
        version = ".".join(map(str, NGINX_VERSION))
        return skip(NGINX, f"nginx {version} or newer")
    with tempfile.TemporaryDirectory() as scratch:
        configuration = str(render_nginx(Path(scratch)))
        return run_failed("nginx", "-t", "-q", "-e", "stderr", "-c", configuration, label=NGINX)


def check_prometheus() -> int:
    """Validate Prometheus' configuration and alert rules."""
    if not available("promtool"):
        return skip(f"{PROMETHEUS} and its rules", "promtool")
    return run_failed("promtool", "check", "config", "--lint=all", "--lint-fatal", PROMETHEUS)


def resources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and content of every Kubernetes resource that is not a patch."""
    for kustomization in sorted((ROOT / KUBERNETES).rglob("kustomization.yaml")):
        names = yaml.safe_load(kustomization.read_text(encoding="utf-8")).get("resources", [])
        for path in (kustomization.parent / name for name in names):
            if path.is_file():
                content = yaml.safe_load(path.read_text(encoding="utf-8"))
                yield str(path.relative_to(ROOT)), content


def is_invalid(path: str, resource: dict[str, Any]) -> bool:
    """Whether a resource violates Kubernetes' schema; the error is printed."""
    if resource["apiVersion"].startswith(CUSTOM_API_GROUPS):
        return False
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        print(f"{path}: {error.message}", file=sys.stderr)
        return True
    return False


def check_kubernetes() -> int:
    """Validate the Kubernetes resources, one by one and as kustomize builds the overlays."""
    failures = sum(is_invalid(path, resource) for path, resource in resources())
    if not available("kustomize"):
        return failures + skip(f"{KUBERNETES}/overlays", "kustomize")
    for overlay in sorted((ROOT / KUBERNETES / "overlays").iterdir()):
        command = ("kustomize", "build", str(overlay))
        if run_failed(*command):
            failures += 1
            continue
        built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        failures += sum(
            is_invalid(overlay.name, resource) for resource in yaml.safe_load_all(built)
        )
    return failures


CHECKS = (
    check_schemas,
    check_github,
    check_stacks,
    check_nginx,
    check_prometheus,
    check_kubernetes,
)

if __name__ == "__main__":
    sys.exit(sum(check() for check in CHECKS) > 0)
