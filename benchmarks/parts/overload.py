"""Single sentences that arrive by chance, at a part of what the server can do and at more of it.

Capacity is what 64 clients that never pause were answered just before. Latency counts from when
a request was due, so a generator that falls behind hides nothing. Beyond the capacity the queue
fills up, and what comes then is refused with 429: only from the first refusal on is counted.
"""

from functools import partial

import numpy as np

from benchmarks import texts
from benchmarks.load import REFUSED, Answers
from benchmarks.parts.latency import MOST_CLIENTS, PERCENTILES
from benchmarks.report import Table, beside, cell
from benchmarks.rounds import Figures, Series, play
from benchmarks.stage import Plan, Stage, embed
from model_store import Precision

LOADS = (10, 50, 80, 120)  # percent of the capacity
PRECISION: Precision = "int8"  # what a CPU serves
SERVER = f"server {PRECISION}"
_OVERFULL_SECONDS = 40.0  # for the queue to fill up and stay so
_CAPACITY_SECONDS = 6.0
_SECONDS = 15.0


def run(plan: Plan, stage: Stage) -> Series:
    """In every round: measure the capacity, then send parts of it."""
    turn = partial(_round, plan, stage)
    found = play({SERVER: turn}, plan.fewer(), plan.tell)
    return {_moved(key): values for key, values in found.items()}


def tables(series: Series) -> list[Table]:
    """Latency and goodput by load."""
    capacity = f"capacity/{SERVER}/rate"
    rows = []
    for load in LOADS:
        key = f"{load} %/{SERVER}"
        rows.append(
            [
                f"{load} %",
                cell(series, f"{key}/sent"),
                cell(series, f"{key}/goodput"),
                beside(series, f"{key}/goodput", capacity),
                *(cell(series, f"{key}/p{p} ms", ",.1f") for p in PERCENTILES),
                cell(series, f"{key}/refused %", ".1f"),
                cell(series, f"{key}/errors"),
            ]
        )
    columns = ["load", "sent/s", "answered 200/s", "÷ capacity"]
    columns += [*(f"p{p}, ms" for p in PERCENTILES), "429, %", "anything else"]
    note = f"Capacity, with {MOST_CLIENTS} clients: {cell(series, capacity)} sentences/s."
    if not min(series[f"{max(LOADS)} %/{SERVER}/refused %"]):
        note += " The queue did not fill up in every round: the server could do more by then."
    return [Table(f"Arrivals by chance, {SERVER}", columns, rows, note)]


def _round(plan: Plan, stage: Stage, number: int) -> Figures:
    """The capacity and every load, as `load measure`."""
    part = plan.seconds / 2.0  # a turn is usually of two seconds
    server = stage.server(PRECISION)
    count = round(600 * _CAPACITY_SECONDS * part)
    drawn = texts.write(texts.usual(f"capacity {number}", count), f"capacity {number}")
    answers = stage.closed(server, [embed([text]) for text in drawn], MOST_CLIENTS).check()
    capacity = answers.rate
    figures = {"capacity rate": capacity, "capacity p50 ms": answers.milliseconds(50)}
    for load in LOADS:
        seconds = _OVERFULL_SECONDS if load > 100 else _SECONDS * part
        name = f"arrivals {load} {number}"
        due = arrivals(name, capacity * load / 100, seconds)
        drawn = texts.write(texts.usual(name, len(due)), name)
        answers = stage.arriving(server, [embed([text]) for text in drawn], due)
        figures |= {f"{load} % {measure}": v for measure, v in judged(answers, seconds).items()}
        plan.tell(f"    {load} %: {answers.others(REFUSED) or 'no errors'}")
    return figures


def arrivals(
    name: str, rate: float, seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When requests come that know nothing of each other, so many a second."""
    chance = np.random.default_rng(texts.seed(name))
    due = np.cumsum(chance.exponential(1 / rate, round(rate * seconds * 1.2) + 20))
    return due[due < seconds]


def judged(answers: Answers, seconds: float) -> dict[str, float]:
    """What was answered 200 and when, counted from the first refusal on if there was one."""
    refused = answers.status == REFUSED
    ends = answers.due + answers.seconds
    start = float(ends[refused].min()) if refused.any() else 0.0
    good = answers.good & (ends >= start) & (ends <= seconds)
    counted = answers.due >= start
    return {
        "sent": float(counted.sum() / (seconds - start)),
        "goodput": float(good.sum() / (seconds - start)),
        **{f"p{p} ms": answers.milliseconds(p) for p in PERCENTILES},
        "refused %": float(100 * (refused & counted).sum() / max(1, counted.sum())),
        "errors": float(sum(answers.others(REFUSED).values())),
        "client cpu ms": answers.cpu / len(answers.due) * 1000,
    }


def _moved(key: str) -> str:
    """`server/80 % p99 ms` as `80 %/server/p99 ms`, like other series."""
    who, measured = key.split("/")
    for workload in ("capacity", *(f"{load} %" for load in LOADS)):
        if measured.startswith(f"{workload} "):
            return f"{workload}/{who}/{measured.removeprefix(workload).strip()}"
    raise KeyError(key)
