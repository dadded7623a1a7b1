"""`lattemix.similarity` against numpy written the obvious way, on 2,000 sentences of 128 x 20.

Ours uses what BLAS does of all cores, and then one, as in the service, whose others run the model.
Naive all-pairs are timed on some of the rows and scaled up: all 2,000 by js would take minutes.
Every contestant is in a process of its own for each kernel, so that its peak memory is its own.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.contestants import timed
from benchmarks.processes import Worker
from benchmarks.report import Table, beside, cell, middle, workloads
from benchmarks.rounds import Figures, Series, play
from benchmarks.stage import Plan, Stage
from lattemix.similarity import Mixtures, matrix, similarity
from model_store import Metric

COUNT, LATENT_DIMS, CLASSES = 2000, 128, 20
TOKENS = 14  # whose distributions a sentence is the mean of
METRICS: tuple[Metric, ...] = ("js", "cosine", "l2")
SHAPES = ("pairs", "one to all", "all pairs")
ALONE = "ours, one core"
NAIVE_ROWS = 20  # of all pairs
CLOSE = 1e-5

Kernel = Callable[[Mixtures, Mixtures], object]


def mixtures(seed: int, count: int = COUNT) -> Mixtures:
    """Means of distributions as peaked as those of tokens are."""
    chance = np.random.default_rng(seed)
    total = np.zeros((count, LATENT_DIMS, CLASSES), np.float32)
    for _ in range(TOKENS):
        logits = chance.standard_normal(total.shape, np.float32) / np.float32(0.3)
        np.exp(logits - logits.max(axis=-1, keepdims=True), out=logits)
        total += logits / logits.sum(axis=-1, keepdims=True)
    return total / np.float32(TOKENS)


def naive(metric: Metric, a: Mixtures, b: Mixtures) -> Mixtures:
    """Of mixtures [..., L, C] that numpy broadcasts against each other."""
    if metric == "js":
        middle = (a + b) / 2
        p = (a * np.log2(a / middle)).sum(axis=-1)
        q = (b * np.log2(b / middle)).sum(axis=-1)
        return np.asarray(1 - ((p + q) / 2).mean(axis=-1))
    if metric == "cosine":
        lengths = np.sqrt((a * a).sum(axis=(-2, -1)) * (b * b).sum(axis=(-2, -1)))
        return np.asarray((a * b).sum(axis=(-2, -1)) / lengths)
    return np.asarray(-np.sqrt(((a - b) ** 2).sum(axis=(-2, -1))))


class Compared:
    """One kernel of one contestant, on sentences of its own process."""

    def __init__(self, who: str, shape: str, metric: Metric, folder: Path) -> None:
        a = np.load(folder / "0.npy")
        b = a if shape == "all pairs" else np.load(folder / "1.npy")
        self._scale = 1.0
        if who == ALONE:
            threadpool_limits(1, user_api="blas")
        if who != "naive":
            kernels: dict[str, Callable[[], object]] = {
                "pairs": lambda: similarity(metric, a, b),
                "one to all": lambda: matrix(metric, a[:1], b),
                "all pairs": lambda: matrix(metric, a, a),
            }
        else:
            kernels = {
                "pairs": lambda: np.array([naive(metric, x, y) for x, y in zip(a, b, strict=True)]),
                "one to all": lambda: np.array([naive(metric, x, b) for x in a[:1]]),
                "all pairs": lambda: np.array([naive(metric, x, a) for x in a[:NAIVE_ROWS]]),
            }
            self._scale = COUNT / NAIVE_ROWS if shape == "all pairs" else 1.0
        self._kernel = kernels[shape]
        with suppress(OSError):  # not every system lets one forget the peak so far
            Path("/proc/self/clear_refs").write_text("5")

    def __call__(self) -> float:
        """Seconds of the whole kernel."""
        return timed(self._kernel) * self._scale

    def values(self) -> Mixtures:
        """What it computes; of all pairs, the rows that the naive one has."""
        return np.asarray(self._kernel())[: NAIVE_ROWS if self._scale > 1 else None]


def run(plan: Plan, stage: Stage) -> Series:
    """Kernel by kernel, both in turns."""
    for seed in range(2):
        np.save(stage.folder / f"{seed}.npy", mixtures(seed))
    series: Series = {}
    for shape in SHAPES:
        for metric in METRICS[:1] if plan.quick else METRICS:
            series |= _compared(f"{shape}, {metric}", shape, metric, plan, stage.folder)
    return series


def _compared(workload: str, shape: str, metric: Metric, plan: Plan, folder: Path) -> Series:
    everyone = ("ours", "naive", ALONE)[: 3 if shape == "all pairs" else 2]
    workers = {who: Worker(Compared, who, shape, metric, folder) for who in everyone}
    try:
        ours, theirs = (workers[who].call("values") for who in ("ours", "naive"))
        error = float(np.abs(ours[: len(theirs)] - theirs).max())
        if error > CLOSE:
            raise ArithmeticError(f"{workload}: the results differ by {error:g}.")
        turns = {f"{workload}/{who}": partial(_turn, worker) for who, worker in workers.items()}
        series = play(turns, plan.rounds, plan.tell)
        return series | {f"{workload}/ours/largest difference": [error]}
    finally:
        for worker in workers.values():
            worker.close()


def _turn(worker: Worker, number: int) -> Figures:
    return {"ms": worker() * 1000, "peak MB": worker.peak_bytes() / 1e6}


def tables(series: Series) -> list[Table]:
    """One."""
    rows = []
    for workload in workloads(series):
        ours, theirs = f"{workload}/ours", f"{workload}/naive"
        rows.append(
            [
                workload,
                cell(series, f"{ours}/ms", ",.1f"),
                cell(series, f"{theirs}/ms", ",.1f"),
                beside(series, f"{theirs}/ms", f"{ours}/ms", ",.1f"),
                beside(series, f"{theirs}/ms", f"{workload}/{ALONE}/ms", ",.1f"),
                middle(series, f"{ours}/peak MB"),
                middle(series, f"{theirs}/peak MB"),
                middle(series, f"{ours}/largest difference", ".0e"),
            ]
        )
    columns = [
        "",
        "ours, ms",
        "naive, ms",
        "naive ÷ ours",
        "on one core",
        "ours, peak MB",
        "naive, peak MB",
    ]
    note = (
        f"{COUNT:,} sentences of {LATENT_DIMS} x {CLASSES}. Naive all pairs: {NAIVE_ROWS} rows "
        "timed, and scaled."
    )
    return [Table("Kernels", [*columns, "largest difference"], rows, note)]
