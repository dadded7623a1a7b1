"""Measure `lattemix dedup` beside semhash on a corpus with planted near-duplicates.

    python -m benchmarks.dedup CORPUS RESULTS --semhash-python ~/semhash/bin/python

CORPUS is a directory that `benchmarks.dedup.corpus` writes. Prints tables, and writes them with
all figures to RESULTS.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.dedup import corpus
from benchmarks.dedup.judge import Judge, Quality
from benchmarks.dedup.processes import Usage
from benchmarks.dedup.report import Curve, tables
from benchmarks.dedup.systems import LatteMix, SemHash, System

THRESHOLDS = (0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98)


def main(
    directory: Annotated[Path, typer.Argument(metavar="CORPUS", exists=True)],
    results: Annotated[Path, typer.Argument(help="Directory to write.")],
    systems: Annotated[
        str, typer.Option(help="Comma-separated: semhash, fast, rescored.")
    ] = "semhash,fast,rescored",
    semhash_python: Annotated[
        Path | None, typer.Option(help="Interpreter that has semhash.")
    ] = None,
    semhash_model: Annotated[
        str, typer.Option(help="Directory or hub id of the model of semhash.")
    ] = "minishlab/potion-base-8M",
    rounds: Annotated[int, typer.Option(min=0, help="Timed runs of each system.")] = 3,
    thresholds: Annotated[str, typer.Option(help="Comma-separated, for the sweep.")] = ",".join(
        map(str, THRESHOLDS)
    ),
) -> None:
    """Measure time, memory, and recall of planted near-duplicates by precision."""
    chosen = [_system(name, semhash_python, semhash_model) for name in systems.split(",")]
    results.mkdir(parents=True, exist_ok=True)
    usages = measure(chosen, directory / corpus.ROWS, results, rounds)
    curves = sweep(chosen, directory, results, [float(value) for value in thresholds.split(",")])
    text = "\n".join(map(str, tables(usages, curves)))
    print(f"\n{text}")
    (results / "dedup.md").write_text(text + "\n")
    content = {
        "usages": {name: [usage._asdict() for usage in runs] for name, runs in usages.items()},
        "curves": {name: _as_json(curve) for name, curve in curves.items()},
    }
    (results / "dedup.json").write_text(json.dumps(content, indent=1) + "\n")


def measure(
    systems: Sequence[System], rows: Path, results: Path, rounds: int
) -> dict[str, list[Usage]]:
    """Time systems in turns, from a file to files, at their default thresholds."""
    usages: dict[str, list[Usage]] = {system.name: [] for system in systems}
    for _ in range(rounds):
        for system in systems:
            usage = system.measure(rows, results / system.name)
            usages[system.name].append(usage)
            print(f"{system.name}: {usage.seconds:.0f} s, {usage.megabytes:,.0f} MB", flush=True)
    return usages


def sweep(
    systems: Sequence[System], directory: Path, results: Path, thresholds: Sequence[float]
) -> dict[str, Curve]:
    """Return the quality of each system at each threshold, and at its default."""
    judge = Judge(*corpus.read(directory))
    curves: dict[str, Curve] = {}
    for system in systems:
        points: dict[float, Quality] = {}
        for threshold, dropped in system.sweep(
            directory / corpus.ROWS,
            results / system.name,
            sorted({*thresholds, system.threshold}),
        ):
            points[threshold] = quality = judge(dropped)
            print(
                f"{system.name} at {threshold:g}: precision {quality.precision:.4f}, "
                f"recall {quality.recall:.4f}",
                flush=True,
            )
        curves[system.name] = Curve(points, system.threshold)
    return curves


def _system(name: str, semhash_python: Path | None, semhash_model: str) -> System:
    if name == "fast":
        return LatteMix("fast")
    if name == "rescored":
        return LatteMix("rescored", ("--rescore", "default"))
    if name != "semhash":
        raise typer.BadParameter(f"no system {name}: semhash, fast, rescored")
    if semhash_python is None:
        raise typer.BadParameter("semhash needs --semhash-python, an interpreter that has it")
    return SemHash(name, semhash_python, semhash_model)


def _as_json(curve: Curve) -> dict[str, object]:
    return {str(threshold): vars(quality) for threshold, quality in curve.points.items()}


if __name__ == "__main__":
    typer.run(main)
