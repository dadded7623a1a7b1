"""Import directions between the packages, and heavy dependencies that must not be loaded."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_store import Artifact

ROOT = Path(__file__).parent.parent
PACKAGES = ("app", "lattemix", "model_store", "training")
ALLOWED = {
    "app": {"lattemix", "model_store"},
    "lattemix": {"model_store"},
    "model_store": set(),
    "training": {"lattemix", "model_store"},
}
# `lattemix serve` starts the service.
EXCEPTIONS = {("lattemix/cli.py", "app")}

WALK = """
import importlib, pkgutil, sys
*roots, skipped = sys.argv[1:]
for root in roots:
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + "."):
        if not skipped or not module.name.startswith(skipped):
            importlib.import_module(module.name)
print(*sys.modules)
"""


def modules_after(program: str, *arguments: str) -> set[str]:
    """Names of the loaded modules after a program ran in an interpreter of its own."""
    command = [sys.executable, "-c", program, *arguments]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(outcome.stdout.split())


def imports(package: str) -> set[tuple[str, str]]:
    """Each file of a package with each top-level name it imports, lazily or not."""
    pairs = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} has a relative import"
                names = [node.module or ""]
            else:
                continue
            file = path.relative_to(ROOT).as_posix()
            pairs |= {(file, name.partition(".")[0]) for name in names}
    return pairs


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_in_one_direction(package: str) -> None:
    others = {*PACKAGES, "benchmarks", "tests"} - ALLOWED[package] - {package}
    assert {pair for pair in imports(package) if pair[1] in others} <= EXCEPTIONS


def test_torch_and_transformers_are_imported_by_training_alone() -> None:
    for package in ("app", "lattemix", "model_store"):
        heavy = {pair for pair in imports(package) if pair[1] in ("torch", "transformers")}
        assert heavy == set()


def test_serving_loads_no_torch_transformers_or_onnx() -> None:
    modules = modules_after(WALK, "app", "lattemix", "model_store", "lattemix.build")
    assert {"app.server", "lattemix.model", "lattemix.cli", "model_store.store"} <= modules
    assert modules & {"torch", "transformers", "onnx", "training"} == set()


def test_building_a_model_loads_no_torch_or_transformers() -> None:
    modules = modules_after(WALK, "lattemix.build", "")
    assert "lattemix.build.assemble" in modules
    assert modules & {"torch", "transformers", "training", "app"} == set()


def test_serving_and_evaluating_load_no_scipy_or_matplotlib(
    artifact: Artifact, tmp_path: Path
) -> None:
    pairs = [f"{'the dog' if i % 2 else 'the sea'} {'runs ' * i},a dog,{i % 2}" for i in range(30)]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b,label", *pairs]))
    program = f"""
import sys
import app.server
from lattemix.cli import cli
store = {str(artifact.path.parents[1])!r}
cli(["evaluate", {str(tmp_path / "pairs.csv")!r}, "--models", "tiny", "--store", store],
    standalone_mode=False)
print(*sys.modules)
"""
    modules = modules_after(program)
    assert {"app.routes.evaluate", "lattemix.labelled.text"} <= modules
    assert modules & {"scipy", "matplotlib"} == set()


def test_clients_load_no_model_runtime_or_web_framework() -> None:
    modules = modules_after("import lattemix, sys; lattemix.Client; print(*sys.modules)")
    assert "lattemix.client.blocking" in modules
    assert modules & {"onnxruntime", "tokenizers", "fastapi", "uvicorn"} == set()


def test_model_loads_no_client_or_web_framework() -> None:
    modules = modules_after("import lattemix, sys; lattemix.load; print(*sys.modules)")
    assert "lattemix.model" in modules
    assert modules & {"httpx", "fastapi", "uvicorn", "app"} == set()


def test_shared_fixtures_load_no_torch_or_transformers() -> None:
    modules = modules_after("import sys, tests.conftest; print(*sys.modules)")
    assert "tests.conftest" in modules
    assert modules & {"torch", "transformers"} == set()


def test_onnx_runtime_writes_no_telemetry(tmp_path: Path, artifact: Artifact) -> None:
    # With telemetry on, it writes a device id and a queue of events under the cache directory.
    program = f"""
from pathlib import Path
from lattemix.encoder import Encoder
from model_store import Artifact
Encoder(Artifact.read(Path({str(artifact.path)!r}))).encode(["a dog"])
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "ORT_DISABLE_TELEMETRY")}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env=environment)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
