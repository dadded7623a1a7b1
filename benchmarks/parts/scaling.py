"""What the engine's speed depends on: token budget, threads, lengths, batches, and the head."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import texts
from benchmarks.contestants import OurEngine, artifact
from benchmarks.processes import Worker
from benchmarks.report import Table, cell, contestants
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import PRECISIONS, Plan, Stage
from lattemix.build.assemble import build_precision
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from model_store import Artifact, Precision
from model_store.manifest import CENTRE, MODEL
from model_store.store import HEADS

BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096)
THREADS = (0, 1, 2)
AT_ONCE = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIZES = ((32, 20), (128, 20), (256, 20), (128, 64))  # L, C
BUDGET, THREAD, LENGTH, BATCH, HEAD = "budget", "threads", "length", "batch", "head"


def run(plan: Plan, stage: Stage) -> Series:
    """One thing at a time, the others as they come."""
    rounds = plan.fewer()
    budgets, sizes = (BUDGETS[::3], AT_ONCE[::4]) if plan.quick else (BUDGETS, AT_ONCE)
    count = plan.sentences() // 2
    series: Series = {}
    with _engines({f"{b} tokens": (0, b) for b in budgets}) as engines:
        series |= play(_turns(BUDGET, engines, count), rounds, plan.tell)
    with _engines({f"{t} threads": (t, 0) for t in THREADS}) as engines:
        series |= play(_turns(THREAD, engines, count), rounds, plan.tell)
        seconds = plan.seconds / (8 if plan.quick else 4)
        for precision in PRECISIONS:
            engine = engines[f"{precision}, 0 threads"]
            found = play({LENGTH: partial(_lengths, engine, seconds)}, rounds, plan.tell)
            for key, values in found.items():
                series[f"{LENGTH}/{precision}, {key.split('/')[1]}/rate"] = values
            turns: dict[str, Turn] = {
                f"{BATCH}/{precision}, {size} at once": partial(_encode, engine, count // 2, size)
                for size in sizes
            }
            series |= play(turns, rounds, plan.tell)
    precisions: tuple[Precision, ...] = ("fp32",) if plan.quick else PRECISIONS
    with _closing() as workers:
        for precision in precisions:
            for latents, classes in SIZES[:2] if plan.quick else SIZES:
                name = f"{precision}, {latents} x {classes}"
                model = with_head(
                    precision, latents, classes, stage.folder / name, stage.backbone()
                )
                workers[name] = Worker(OurEngine, model)
        series |= play(_turns(HEAD, workers, count), rounds, plan.tell)
    return series


def with_head(
    precision: Precision, latents: int, classes: int, folder: Path, backbone: Path
) -> Artifact:
    """The default model with an untrained head of another size: what it says does not matter."""
    whole, usual = artifact(precision), Head.load(HEADS / "default")
    chance, (first, _) = np.random.default_rng(0), usual.encoder[0]
    shape = (latents * classes, first.shape[1])
    tensors = {
        "mean": usual.tensors["mean"],
        "encoder.0.weight": chance.normal(0, first.std(), shape).astype(np.float32),
        "encoder.0.bias": np.zeros(shape[0], np.float32),
    }
    size = {"latent_dims": latents, "classes": classes}
    head = Head(usual.spec.model_copy(update=size), tensors)
    checkpoint = Checkpoint.read(backbone)
    folder.mkdir()
    model = build_precision(checkpoint, head, precision)
    (folder / MODEL).write_bytes(model.SerializeToString())
    (folder / whole.tokenizer.name).write_bytes(whole.tokenizer.read_bytes())
    files = {name: record for name, record in whole.manifest.files.items() if name != CENTRE}
    return Artifact(folder, whole.manifest.model_copy(update={**size, "files": files}))


@contextmanager
def _closing() -> Iterator[dict[str, Worker]]:
    """Workers that end together."""
    workers: dict[str, Worker] = {}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


@contextmanager
def _engines(settings: dict[str, tuple[int, int]]) -> Iterator[dict[str, Worker]]:
    """An engine in either precision for all threads and budgets."""
    with _closing() as workers:
        for precision in PRECISIONS:
            for name, (threads, budget) in settings.items():
                worker = Worker(OurEngine, artifact(precision), threads, budget)
                workers[f"{precision}, {name}"] = worker
        yield workers


def _turns(workload: str, engines: dict[str, Worker], count: int) -> dict[str, Turn]:
    return {
        f"{workload}/{name}": partial(_encode, engine, count, 0) for name, engine in engines.items()
    }


def _encode(engine: Worker, count: int, at_once: int, number: int) -> Figures:
    drawn = texts.sentences(number, count)
    rate = count / engine(drawn, at_once)
    return {"rate": rate, "peak MB": engine.peak_bytes() / 1e6}


def _lengths(engine: Worker, seconds: float, number: int) -> Figures:
    return {f"{length} tokens": rate for length, rate in engine.call("speeds", seconds)}


def tables(series: Series) -> list[Table]:
    """One for everything that was varied."""
    titles = {
        BUDGET: "Token budget of a batch",
        THREAD: "Threads of a batch (0: a batch on every core)",
        LENGTH: "Length of sentences",
        BATCH: "Sentences in a call",
        HEAD: "Size of the head, L x C",
    }
    return [_table(series, workload, title) for workload, title in titles.items()]


def _table(series: Series, workload: str, title: str) -> Table:
    names = contestants(series, workload, "rate")
    values = list(dict.fromkeys(name.partition(", ")[2] for name in names))
    memory = workload in (BUDGET, HEAD)
    find: Callable[[str, str, str], str] = lambda precision, value, measure: cell(  # noqa: E731
        series, f"{workload}/{precision}, {value}/{measure}"
    )
    rows = [
        [value]
        + [find(precision, value, "rate") for precision in PRECISIONS]
        + ([find(precision, value, "peak MB") for precision in PRECISIONS] if memory else [])
        for value in values
    ]
    columns = ["", *(f"{precision}, sentences/s" for precision in PRECISIONS)]
    columns += [f"{precision}, peak MB" for precision in PRECISIONS] if memory else []
    return Table(title, columns, rows)
