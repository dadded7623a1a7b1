"""The server stays light: what it imports, and who may import whom."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from model_store import Artifact

ROOT = Path(__file__).parent.parent

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
for root in ("app", "model_store"):
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + "."):
        importlib.import_module(module.name)
heavy = sorted({"torch", "transformers", "onnx", "training"} & set(sys.modules))
count = sum(name.split(".")[0] in ("app", "model_store") for name in sys.modules)
print(count, *heavy)
"""


def test_serving_loads_neither_torch_nor_transformers_nor_onnx() -> None:
    # A fresh interpreter: in this one the tests have loaded everything already.
    command = [sys.executable, "-c", IMPORT_EVERYTHING]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    count, *heavy = output.split()
    assert int(count) >= 15, "the walk must really have imported the packages"
    assert heavy == []


def test_the_client_needs_neither_the_model_nor_the_server() -> None:
    code = (
        "import lattemix.client, sys; "
        "print(*{'onnxruntime', 'tokenizers', 'fastapi', 'uvicorn'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.split() == []


def imports(package: str) -> dict[str, set[str]]:
    """Top-level packages each file of `package` imports, lazily or not."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = [
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        ]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        found[str(path.relative_to(ROOT))] = {name.partition(".")[0] for name in names}
    return found


def test_imports_flow_one_way() -> None:
    for path, names in imports("model_store").items():
        assert not names & {"app", "training"}, path
    for path, names in imports("app").items():
        # `lattemix build` hands over to the exporter, lazily; nothing else in app knows of it.
        assert path == "app/cli.py" or "training" not in names, path
    assert "training" in imports("app")["app/cli.py"]


def test_export_needs_no_torch() -> None:
    code = (
        "import lattemix.build.assemble, sys; print({'torch', 'transformers'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.strip() == "set()"


def test_onnx_runtime_keeps_no_record_of_us(tmp_path: Path, artifact: Artifact) -> None:
    # With its telemetry on, it writes a device id and a queue of events under the cache directory.
    code = f"""
from pathlib import Path
from lattemix.encoder import Encoder
from model_store import Artifact
Encoder(Artifact.read(Path({str(artifact.path)!r}))).encode(["a dog"])
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "ORT_DISABLE_TELEMETRY")}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
