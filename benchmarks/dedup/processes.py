"""Run a command, and measure its time and memory."""

import resource
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_POLL_SECONDS = 1.0
_LOG_BYTES = 2000  # of the log's end, shown if a command fails


class Usage(NamedTuple):
    """Resources of a command and the processes that it started."""

    seconds: float
    cpu_seconds: float
    megabytes: float  # largest resident size; a page shared by processes counts once


def run(command: Sequence[str | Path], log: Path) -> Usage:
    """Run a command to its end.

    Args:
        command: with its arguments.
        log: file to write its output to.
    """
    began, began_cpu, peak = time.perf_counter(), _children_cpu_seconds(), 0.0
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                peak = max(peak, sum(_megabytes(pid) for pid in _tree(process.pid)))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    seconds, cpu_seconds = time.perf_counter() - began, _children_cpu_seconds() - began_cpu
    if process.returncode:
        end = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
        raise RuntimeError(f"{command[0]} exited with {process.returncode}:\n{end}")
    return Usage(seconds, cpu_seconds, peak)


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children: list[int] = []
    with suppress(OSError):  # it may have ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return [pid, *(descendant for child in children for descendant in _tree(child))]


def _megabytes(pid: int) -> float:
    """Return a process's share of the memory that it has mapped."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
