"""`lattemix.similarity` beside straightforward numpy, on 2,000 mixtures of 128 x 20.

Naive all pairs is timed on some rows and extrapolated.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.in_process import timed
from benchmarks.report import Table, ratio_cell, spread_cell, workload_names
from benchmarks.rounds import Figures, Measurement, Plan, Series, run_rounds
from benchmarks.systems import Systems
from lattemix.similarity import Mixtures, matrix, similarity
from model_store import Metric

COUNT, LATENT_DIMS, CLASSES = 2000, 128, 20
TOKENS = 14  # per sentence
METRICS: tuple[Metric, ...] = ("js", "cosine", "l2")
OURS, NAIVE = "ours", "naive"
NAIVE_ROWS = 20  # of all pairs
TOLERANCE = 1e-5

Kernel = Callable[[], NDArray[np.floating]]


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


def kernels(metric: Metric, a: Mixtures, b: Mixtures) -> dict[str, tuple[Kernel, Kernel]]:
    """Our kernel and the naive one, by workload."""
    return {
        f"pairs, {metric}": (
            lambda: similarity(metric, a, b),
            lambda: np.array([naive(metric, x, y) for x, y in zip(a, b, strict=True)]),
        ),
        f"one to all, {metric}": (
            lambda: matrix(metric, a[:1], b),
            lambda: naive(metric, a[0], b)[None],
        ),
        f"all pairs, {metric}": (
            lambda: matrix(metric, a, a),
            lambda: np.array([naive(metric, x, a) for x in a[:NAIVE_ROWS]]),
        ),
    }


def run(plan: Plan, systems: Systems) -> Series:
    """Measure kernel by kernel; quick: only JS."""
    a, b = mixtures(0), mixtures(1)
    series: Series = {}
    for metric in METRICS[:1] if plan.quick else METRICS:
        for workload, (ours, reference) in kernels(metric, a, b).items():
            expected = reference()
            difference = float(np.abs(ours()[: len(expected)] - expected).max())
            if difference > TOLERANCE:
                raise ArithmeticError(f"{workload}: the results differ by {difference:g}.")
            scale = COUNT / NAIVE_ROWS if workload.startswith("all pairs") else 1.0
            pair = {
                f"{workload}/{OURS}": _measurement(ours, 1.0),
                f"{workload}/{NAIVE}": _measurement(reference, scale),
            }
            series |= run_rounds(pair, plan.rounds)
            series[f"{workload}/{OURS}/difference"] = [difference]
    return series


def _measurement(kernel: Kernel, scale: float) -> Measurement:
    def measure(number: int) -> Figures:
        return {"ms": timed(kernel) * 1000 * scale}

    return measure


def tables(series: Series) -> list[Table]:
    """One table."""
    rows = [
        [
            workload,
            spread_cell(series, f"{workload}/{OURS}/ms", ",.1f"),
            spread_cell(series, f"{workload}/{NAIVE}/ms", ",.1f"),
            ratio_cell(series, f"{workload}/{NAIVE}/ms", f"{workload}/{OURS}/ms", ",.1f"),
            spread_cell(series, f"{workload}/{OURS}/difference", ".0e"),
        ]
        for workload in workload_names(series)
    ]
    columns = ["", "ours, ms", "naive, ms", "naive ÷ ours", "largest difference"]
    note = f"{COUNT:,} mixtures of {LATENT_DIMS} x {CLASSES}; naive all pairs is extrapolated."
    return [Table("Similarity kernels", columns, rows, note)]
