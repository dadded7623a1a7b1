"""Check the files of a deployment as far as this machine can, and say what it could not.

`make lint` runs it.
"""

import json
import shutil
import subprocess
import sys
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


def check_schemas() -> int:
    """Each compose file against the schema of its format."""
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    failures = 0
    for name in (BASE, *OVERLAYS):
        document = yaml.load((ROOT / name).read_text(encoding="utf-8"), ComposeLoader)
        failures += failed(*command, "-", stdin=json.dumps(document), about=name)
    return failures


def check_stacks() -> int:
    """The compose files as Docker reads them together."""
    compose = ("docker", "compose")
    found = (
        shutil.which("docker")
        and not subprocess.run([*compose, "version"], capture_output=True).returncode
    )
    if not found:
        print("Not checked, for want of docker compose: the compose files together.")
        return 0
    profiles = ("--profile=train", "--profile=monitoring")
    return sum(
        failed(*compose, *(f"--file={name}" for name in files), *profiles, "config", "--quiet")
        for files in ((BASE,), *((BASE, overlay) for overlay in OVERLAYS))
    )


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
    """The Kubernetes resources, one by one and as kustomize builds them."""
    failures = sum(invalid(where, resource) for where, resource in resources())
    if not shutil.which("kustomize"):
        print(f"Not checked, for want of kustomize: {KUBERNETES}/overlays.")
        return failures
    for overlay in sorted((ROOT / KUBERNETES / "overlays").iterdir()):
        command = ("kustomize", "build", str(overlay))
        if failed(*command):
            failures += 1
            continue
        built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        failures += sum(invalid(overlay.name, each) for each in yaml.safe_load_all(built))
    return failures


if __name__ == "__main__":
    sys.exit(check_schemas() + check_stacks() + check_kubernetes() > 0)
