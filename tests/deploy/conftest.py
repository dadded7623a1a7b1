"""`deploy/check.py`, a script of `make lint` in no package, and the tools that it runs."""

import importlib.util
import os
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "check", Path(__file__).parents[2] / "deploy/check.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
check = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check)


def require(tool: str) -> None:
    """Skip the test if a tool is missing, or fail it where all of them are required."""
    if not check.available(tool):
        missing = pytest.fail if os.environ.get("DEPLOY_TOOLS_REQUIRED") else pytest.skip
        missing(f"{tool} is missing: `make deploy-tools`, then `make test`")
