"""What precision costs: similarities beside those in fp32, and agreement with people.

On the pairs of `--sts`, a file of the STS benchmark; our own by the recommended metric, the others'
by cosine. infinity serves the vectors of sentence-transformers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.report import Table, spread_cell, system_names
from benchmarks.rounds import Figures, Plan, Series, record
from benchmarks.systems import AnyWorker, Systems
from training.evaluate.sets import read_sets

OURS, THEIRS = "library fp32", "sentence-transformers torch fp32"
WORKLOAD = "quality"


def run(plan: Plan, systems: Systems) -> Series:
    """Compare all libraries once."""
    series: Series = {}
    if plan.sts is None:
        print("  left out: name a file of the STS benchmark with --sts.")
        return series
    (pairs,), left_out = read_sets([Path(plan.sts)], [])
    print(*left_out, sep="\n", end="")
    workers: Mapping[str, AnyWorker] = {**systems.libraries, **systems.static}
    scores = {
        name: worker.call("similarities", pairs.a, pairs.b) for name, worker in workers.items()
    }
    for name, values in scores.items():
        reference = OURS if name.startswith("library") else THEIRS
        expected = scores.get(reference) if name in systems.libraries else None
        record(series, f"{WORKLOAD}/{name}", _figures(values, expected, pairs.gold), "all pairs")
    return series


def _figures(
    scores: Sequence[float], expected: Sequence[float] | None, gold: Sequence[float]
) -> Figures:
    figures = {"spearman": 100 * float(spearmanr(scores, gold).statistic)}
    if expected is not None:
        differences = np.abs(np.subtract(scores, expected))
        figures |= {"mean": float(differences.mean()), "largest": float(differences.max())}
    return figures


def tables(series: Series) -> list[Table]:
    """One table, if anything was measured."""
    rows = [
        [
            name,
            spread_cell(series, f"{WORKLOAD}/{name}/spearman", ".2f"),
            spread_cell(series, f"{WORKLOAD}/{name}/mean", ".4f"),
            spread_cell(series, f"{WORKLOAD}/{name}/largest", ".3f"),
        ]
        for name in system_names(series, WORKLOAD, "spearman")
    ]
    columns = ["", "Spearman x100", "mean difference from fp32", "largest"]
    return [Table("Quality", columns, rows)] if rows else []
