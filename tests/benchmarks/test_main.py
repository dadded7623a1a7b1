"""The command line."""

import subprocess
import sys

import pytest
import typer

from benchmarks.__main__ import main


def test_rejects_unknown_parts_by_name() -> None:
    with pytest.raises(typer.BadParameter, match="no part speed: throughput, quality"):
        main(["speed"])


def test_benchmark_process_imports_no_heavy_packages() -> None:
    """Worker processes import the same modules, and their memory is measured."""
    program = (
        "import sys, benchmarks.__main__; "
        "print(*{'torch', 'sentence_transformers', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
