"""Whether `/health` and `/ready` answer at once while the int8 server has more than it can do."""

import http.client
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks import texts
from benchmarks.load import HOST, post
from benchmarks.processes import Worker
from benchmarks.report import Table, cell, workloads
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import Plan, Stage, ask_similarity, in_parts

PROBES = ("/health", "/ready")
PERCENTILES = (50, 99)
_PAUSE_SECONDS = 0.02
_WHO = "server int8"


class Work(NamedTuple):
    """A kind of request, and how many clients send it without a pause."""

    ask: Callable[[Sequence[str]], bytes]
    sentences: int  # in a request
    clients: int


WORK = {
    "pairs, one a request": Work(lambda drawn: ask_similarity([drawn]), 2, 32),
    "32 mixtures a request": Work(lambda drawn: post("/embed", {"inputs": drawn}), 32, 8),
    "1,024 mixtures a request": Work(lambda drawn: post("/embed", {"inputs": drawn}), 1024, 3),
    "all pairs of 512 by js": Work(
        lambda drawn: post("/matrix", {"inputs": drawn, "metric": "js", "top_k": 9}), 512, 3
    ),
}


class Prober:
    """Asks both probes in turns, in a process of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, seconds: float) -> dict[str, list[tuple[float, float]]]:
        """When every answer came, by the machine's clock, and after how many seconds."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        found: dict[str, list[tuple[float, float]]] = {path: [] for path in PROBES}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for path, times in found.items():
                start = time.perf_counter()
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{path} answered {answer.status}.")
                now = time.perf_counter()
                times.append((now, now - start))
            time.sleep(_PAUSE_SECONDS)
        connection.close()
        return found


def run(plan: Plan, stage: Stage) -> Series:
    """Every kind of work, with a prober beside it."""
    prober = Worker(Prober, stage.server("int8").port)
    try:
        turns: dict[str, Turn] = {
            f"{name}/{_WHO}": partial(_turn, plan, stage, prober, name, work)
            for name, work in list(WORK.items())[: 2 if plan.quick else None]
        }
        return play(turns, 1 if plan.quick else 2, plan.tell)
    finally:
        prober.close()


def _turn(plan: Plan, stage: Stage, prober: Worker, name: str, work: Work, number: int) -> Figures:
    seconds = plan.seconds * 3
    whole = work.clients * work.sentences
    count = -(-round(1000 * seconds) // whole) * whole  # some seconds of work, for every client
    drawn = texts.write(texts.usual(f"{name} {number}", count), f"{name} {number}")
    requests = [work.ask(list(part)) for part in in_parts(drawn, work.sentences)]
    prober.begin(seconds)
    answers = stage.closed(stage.server("int8"), requests, work.clients).check()
    end = time.perf_counter()  # what came later found the server idle
    found = prober.end()
    figures = {"rate": count / answers.elapsed}
    for path, times in found.items():
        busy = [seconds for when, seconds in times if when <= end]
        for p in PERCENTILES:
            figures[f"{path} p{p} ms"] = float(np.percentile(busy, p)) * 1000
    return figures


def tables(series: Series) -> list[Table]:
    """One."""
    measures = [f"{path} p{p} ms" for path in PROBES for p in PERCENTILES]
    rows = [
        [
            workload,
            cell(series, f"{workload}/{_WHO}/rate"),
            *(cell(series, f"{workload}/{_WHO}/{measure}", ".1f") for measure in measures),
        ]
        for workload in workloads(series)
    ]
    columns = ["work, as fast as it is answered", "sentences/s"]
    columns += [measure.removesuffix(" ms") + ", ms" for measure in measures]
    return [Table(f"Probes meanwhile, {_WHO}", columns, rows)]
