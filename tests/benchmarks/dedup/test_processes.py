import sys
from pathlib import Path

import pytest

from benchmarks.dedup.processes import run

CHILD = "import time; block = bytearray(100_000_000); time.sleep(1.5)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_memory_includes_child_processes(tmp_path: Path) -> None:
    usage = run([sys.executable, "-c", PARENT], tmp_path / "log")
    assert 90 < usage.megabytes < 300
    assert usage.seconds > 1.5
    assert usage.cpu_seconds > 0


def test_a_failed_command_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"exited with 1:(.|\n)*no such thing"):
        run([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path / "log")
