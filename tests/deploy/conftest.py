"""`deploy/check.py`, which is a script of `make lint` and in no package."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "check", Path(__file__).parents[2] / "deploy/check.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
check = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check)
