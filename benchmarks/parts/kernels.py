"""`lattemix.similarity` beside straightforward numpy, on 2,000 mixtures of 128 x 20.

Naive all pairs is timed on some rows and extrapolated. Every contestant has one process per kernel,
so that its peak memory is its own.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contestants import Contestants
from benchmarks.in_process import timed
from benchmarks.processes import Worker
from benchmarks.report import Table, median_cell, ratio_cell, spread_cell, workload_names
from benchmarks.rounds import Figures, Plan, Series, run_rounds
from lattemix.similarity import Mixtures, matrix, similarity
from model_store import Metric

COUNT, LATENT_DIMS, CLASSES = 2000, 128, 20
TOKENS = 14  # per sentence
METRICS: tuple[Metric, ...] = ("js", "cosine", "l2")
SHAPES = ("pairs", "one to all", "all pairs")
OURS, NAIVE = "ours", "naive"
NAIVE_ROWS = 20  # of all pairs
TOLERANCE = 1e-5


def mixtures(seed: int, count: int = COUNT) -> Mixtures:
    """Means of random token distributions at the default model's temperature: [count, L, C]."""
    random = np.random.default_rng(seed)
    total = np.zeros((count, LATENT_DIMS, CLASSES), np.float32)
    for _ in range(TOKENS):
        logits = random.standard_normal(total.shape, np.float32) / np.float32(0.3)
        np.exp(logits - logits.max(axis=-1, keepdims=True), out=logits)
        total += logits / logits.sum(axis=-1, keepdims=True)
    return total / np.float32(TOKENS)


def naive(metric: Metric, a: Mixtures, b: Mixtures) -> Mixtures:
    """Similarity of mixtures [..., L, C] by numpy broadcasting."""
    if metric == "js":
        mean = (a + b) / 2
        p = (a * np.log2(a / mean)).sum(axis=-1)
        q = (b * np.log2(b / mean)).sum(axis=-1)
        return np.asarray(1 - ((p + q) / 2).mean(axis=-1))
    if metric == "cosine":
        norms = np.sqrt((a * a).sum(axis=(-2, -1)) * (b * b).sum(axis=(-2, -1)))
        return np.asarray((a * b).sum(axis=(-2, -1)) / norms)
    return np.asarray(-np.sqrt(((a - b) ** 2).sum(axis=(-2, -1))))


class Kernel:
    """One kernel of one contestant."""

    def __init__(self, name: str, shape: str, metric: Metric, folder: Path) -> None:
        a = np.load(folder / "0.npy")
        b = a if shape == "all pairs" else np.load(folder / "1.npy")
        kernels: dict[str, Callable[[], object]] = {
            "pairs": lambda: similarity(metric, a, b),
            "one to all": lambda: matrix(metric, a[:1], b),
            "all pairs": lambda: matrix(metric, a, a),
        }
        self._scale = 1.0
        if name == NAIVE:
            kernels = {
                "pairs": lambda: np.array([naive(metric, x, y) for x, y in zip(a, b, strict=True)]),
                "one to all": lambda: np.array([naive(metric, x, b) for x in a[:1]]),
                "all pairs": lambda: np.array([naive(metric, x, a) for x in a[:NAIVE_ROWS]]),
            }
            self._scale = COUNT / NAIVE_ROWS if shape == "all pairs" else 1.0
        self._kernel = kernels[shape]
        with suppress(OSError):  # resets the peak so far; not every system allows it
            Path("/proc/self/clear_refs").write_text("5")

    def __call__(self) -> float:
        """Seconds of the complete kernel."""
        return timed(self._kernel) * self._scale

    def values(self) -> Mixtures:
        """The kernel's result; for naive all pairs, its first rows."""
        return np.asarray(self._kernel())


def run(plan: Plan, contestants: Contestants) -> Series:
    """Measure kernel by kernel; quick: only JS."""
    series: Series = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(2):
            np.save(folder / f"{seed}.npy", mixtures(seed))
        for shape in SHAPES:
            for metric in METRICS[:1] if plan.quick else METRICS:
                series |= _compare(shape, metric, plan.rounds, folder)
    return series


def _compare(shape: str, metric: Metric, rounds: int, folder: Path) -> Series:
    workload = f"{shape}, {metric}"
    workers = {name: Worker(Kernel, name, shape, metric, folder) for name in (OURS, NAIVE)}
    try:
        ours, reference = (workers[name].call("values") for name in (OURS, NAIVE))
        difference = float(np.abs(ours[: len(reference)] - reference).max())
        if difference > TOLERANCE:
            raise ArithmeticError(f"{workload}: the results differ by {difference:g}.")
        series = run_rounds(
            {f"{workload}/{name}": partial(_measure, worker) for name, worker in workers.items()},
            rounds,
        )
        return series | {f"{workload}/{OURS}/difference": [difference]}
    finally:
        for worker in workers.values():
            worker.close()


def _measure(worker: Worker, number: int) -> Figures:
    return {"ms": worker() * 1000, "peak MB": worker.peak_bytes() / 1e6}


def tables(series: Series) -> list[Table]:
    """One table."""
    rows = []
    for workload in workload_names(series):
        ours, reference = f"{workload}/{OURS}", f"{workload}/{NAIVE}"
        rows.append(
            [
                workload,
                spread_cell(series, f"{ours}/ms", ",.1f"),
                spread_cell(series, f"{reference}/ms", ",.1f"),
                ratio_cell(series, f"{reference}/ms", f"{ours}/ms", ",.1f"),
                median_cell(series, f"{ours}/peak MB"),
                median_cell(series, f"{reference}/peak MB"),
                median_cell(series, f"{ours}/difference", ".0e"),
            ]
        )
    columns = ["", "ours, ms", "naive, ms", "naive ÷ ours"]
    columns += ["ours, peak MB", "naive, peak MB", "largest difference"]
    note = (
        f"{COUNT:,} mixtures of {LATENT_DIMS} x {CLASSES}. Naive all pairs is extrapolated from "
        f"{NAIVE_ROWS} rows."
    )
    return [Table("Similarity kernels", columns, rows, note)]
