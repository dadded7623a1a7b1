"""All parts in one run."""

import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.parts import (
    cache,
    graph,
    health,
    kernels,
    latency,
    memory,
    overload,
    scaling,
    throughput,
    training,
)
from benchmarks.report import Table
from benchmarks.rounds import Series
from benchmarks.stage import INFINITY, Plan, Stage

PARTS: dict[str, ModuleType] = {
    "throughput": throughput,
    "latency": latency,
    "load": overload,
    "cache": cache,
    "kernels": kernels,
    "memory": memory,
    "scaling": scaling,
    "graph": graph,
    "health": health,
    "training": training,
}

Results = dict[str, Series]


def plan(quick: bool, **given: Any) -> Plan:
    """How much is done, unless it is said otherwise."""
    less: dict[str, Any] = {"rounds": 3, "seconds": 1.0, "requests": 2000} if quick else {}
    tell = lambda line: print(line, flush=True)  # noqa: E731
    return Plan(quick=quick, tell=tell, **{**less, **given})


def run(plan: Plan, parts: Sequence[str] = ()) -> tuple[Results, list[str]]:
    """Measure the parts that are named, or all; return what was found, and which parts failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and stop the servers
    results: Results = {}
    failed: list[str] = []
    with Stage() as stage:
        for name in parts or PARTS:
            start = time.perf_counter()
            plan.tell(name)
            try:
                results[name] = PARTS[name].run(plan, stage)
            except Exception:  # the others are worth having
                traceback.print_exc()
                failed.append(name)
            plan.tell(f"  {name} took {time.perf_counter() - start:.0f} s")
    return results, failed


def tables(results: Results) -> list[Table]:
    """Of every part."""
    return [table for name, series in results.items() for table in PARTS[name].tables(series)]


def machine() -> dict[str, Any]:
    """What this ran on, and with which versions."""
    names = ("numpy", "onnxruntime", "torch", "sentence-transformers", "tokenizers", "uvicorn")
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names} | _infinity(),
    }


def described(plan: Plan) -> dict[str, Any]:
    """The plan, for the record."""
    return {name: getattr(plan, name) for name in ("rounds", "seconds", "quick", "requests")}


def heading() -> str:
    """The machine in a sentence."""
    about = machine()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {versions}. "
        "Medians, and the lowest to the highest of the rounds; ratios are taken within a round."
    )


def _cpu() -> str:
    """Its name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _infinity() -> dict[str, str]:
    """The version of infinity, which is in an environment of its own."""
    for found in INFINITY.parent.parent.glob("lib/*/site-packages/infinity_emb-*.dist-info"):
        return {"infinity-emb": found.name.split("-")[1].removesuffix(".dist")}
    return {}
