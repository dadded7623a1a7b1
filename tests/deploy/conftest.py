"""Imports the programs of `deploy/`, which are in no package, and runs the tools that they use."""

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml


def load(name: str) -> ModuleType:
    """Import a program of `deploy/`."""
    path = Path(__file__).parents[2] / f"deploy/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load("check")


def require(tool: str) -> None:
    """Skip the test if a tool is missing, or fail it if DEPLOY_TOOLS_REQUIRED is set."""
    if not check.available(tool):
        end = pytest.fail if os.environ.get("DEPLOY_TOOLS_REQUIRED") else pytest.skip
        end(f"{tool} is missing: `make deploy-tools`, then `make test`")


def run_promtool(tests: str, folder: Path) -> None:
    """Run `promtool test rules` on tests in YAML."""
    require("promtool")
    (folder / "tests.yml").write_text(tests, encoding="utf-8")
    command = ("promtool", "test", "rules", "tests.yml")
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def evaluate(
    query: str, series: dict[str, str], expected: list[tuple[str, float]], folder: Path
) -> None:
    """Compare a query at 15 minutes, on samples every 15 seconds, with (labels, value) to 1e-6."""
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({query}, 0.000001)",
                "eval_time": "15m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in expected],
            }
        ],
    }
    run_promtool(yaml.safe_dump({"tests": [test]}), folder)
