"""Measure Latte-Mix beside other libraries and servers.

Prints tables, and writes them with all figures and plots to benchmarks/results.
"""

import json
import os
import platform
import signal
import sys
import traceback
from contextlib import closing
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from benchmarks.parts import host, kernels, latency, load, memory, quality, throughput
from benchmarks.rounds import Plan, Series
from benchmarks.systems import MISSING, Systems

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, ModuleType] = {
    "throughput": throughput,
    "quality": quality,
    "latency": latency,
    "load": load,
    "memory": memory,
    "kernels": kernels,
    "host": host,
}


def main(
    parts: Annotated[
        list[str] | None, typer.Argument(help=f"Parts to run: {', '.join(PARTS)}. Default: all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer, shorter rounds.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Default: 9, quick: 3.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.01, help="Seconds per measurement. Default: 2, quick: 1."),
    ] = None,
    model2vec: Annotated[
        Path | None, typer.Option(exists=True, help="Directory of a model of model2vec.")
    ] = None,
    sts: Annotated[
        Path | None, typer.Option(exists=True, help="File of the STS benchmark, for quality.")
    ] = None,
) -> None:
    """Measure speed and memory beside other libraries and servers."""
    if unknown := set(parts or ()) - PARTS.keys():
        raise typer.BadParameter(f"no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    rounds, seconds = rounds or (3 if quick else 9), seconds or (1.0 if quick else 2.0)
    plan = Plan(rounds, seconds, quick, str(sts) if sts else None)
    for name in MISSING:
        print(f"{name} is not installed and left out: `make bench` installs it.")
    results, failures = measure(plan, parts or list(PARTS), model2vec)
    save(results, plan)
    if failures:
        sys.exit(f"Failed: {', '.join(failures)}.")


def measure(
    plan: Plan, parts: list[str], model2vec: Path | None
) -> tuple[dict[str, Series], list[str]]:
    """Run parts; return their series, and the names of those that failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stops the servers
    results: dict[str, Series] = {}
    failures: list[str] = []
    with closing(Systems(model2vec)) as systems:
        for name in parts:
            print(name, flush=True)
            try:
                results[name] = PARTS[name].run(plan, systems)
            except Exception:  # the other parts still run
                traceback.print_exc()
                failures.append(name)
    return results, failures


def save(results: dict[str, Series], plan: Plan) -> None:
    """Print tables; write tables, figures and plots."""
    tables = [
        str(table) for name, series in results.items() for table in PARTS[name].tables(series)
    ]
    text, machine = "\n".join(tables), describe_machine()
    print(f"\n{text}")
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": machine, "plan": asdict(plan), "parts": results}
    (RESULTS / "bench.json").write_text(json.dumps(content, indent=1) + "\n")
    heading = ", ".join(f"{name} {value}" for name, value in machine.items())
    note = "Medians, with the lowest and highest round; ratios are taken within a round."
    (RESULTS / "bench.md").write_text(f"# Benchmarks\n\n{heading}. {note}\n\n{text}")
    from benchmarks import plots  # here, so that worker processes do not load matplotlib

    for path in plots.draw(results, RESULTS):
        print(f"wrote {path}")


def describe_machine() -> dict[str, str]:
    """Processor, cores and versions."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    packages = ["numpy", "onnxruntime", "tokenizers", "uvicorn", "torch", "sentence-transformers"]
    return {
        "CPU": names[0] if names else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "Python": platform.python_version(),
        **{name: metadata.version(name) for name in packages if name not in MISSING},
    }


if __name__ == "__main__":
    typer.run(main)
