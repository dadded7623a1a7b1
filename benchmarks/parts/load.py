"""Latency and goodput of single sentences that arrive at random, below and above capacity.

Capacity is the throughput of 64 closed-loop clients just before. Latency counts from the scheduled
send time, which avoids coordinated omission. Above capacity the queue fills up first; figures count
from the first 429 on.
"""

from benchmarks import texts
from benchmarks.load_generator import TOO_MANY_REQUESTS, Responses
from benchmarks.parts.latency import PERCENTILES
from benchmarks.report import Table, ratio_cell, spread_cell
from benchmarks.rounds import Figures, Plan, Series, record
from benchmarks.systems import Systems
from benchmarks.traffic import embed, poisson_arrivals

LOADS = (10, 50, 80, 120)  # percent of the capacity
SERVER = "server int8"
CAPACITY = f"capacity/{SERVER}"
CLIENTS = 64
# Durations of a plan with measurements of 2 s.
_CAPACITY_SECONDS, _LOAD_SECONDS = 6.0, 15.0
_OVERLOAD_SECONDS = 40.0  # fixed: the queue has to fill up


def run(plan: Plan, systems: Systems) -> Series:
    """Measure the capacity and every load in each round."""
    series: Series = {}
    server, scale = systems.server("int8"), plan.seconds / 2.0
    for number in range(plan.few_rounds):
        heading = f"round {number + 1}"
        count = round(600 * _CAPACITY_SECONDS * scale)
        requests = [embed([text]) for text in texts.sentences(f"capacity {number}", count)]
        responses = server.closed_loop(requests, CLIENTS).check()
        record(series, CAPACITY, {"rate": responses.rate}, heading)
        for load in LOADS:
            seconds = _OVERLOAD_SECONDS if load > 100 else _LOAD_SECONDS * scale
            seed = f"load {load} {number}"
            due = poisson_arrivals(seed, responses.rate * load / 100, seconds)
            requests = [embed([text]) for text in texts.sentences(seed, len(due))]
            figures = summarise(server.open_loop(requests, due), seconds)
            record(series, f"{load} %/{SERVER}", figures, heading)
    return series


def summarise(responses: Responses, seconds: float) -> Figures:
    """Rates and latencies within `seconds`, counted from the first 429 on if there was one."""
    rejected = responses.status == TOO_MANY_REQUESTS
    ends = responses.due + responses.seconds
    start = float(ends[rejected].min()) if rejected.any() else 0.0
    completed = responses.ok & (ends >= start) & (ends <= seconds)
    counted = responses.due >= start
    return {
        "sent": float(counted.sum() / (seconds - start)),
        "goodput": float(completed.sum() / (seconds - start)),
        **{f"p{p} ms": responses.milliseconds(p) for p in PERCENTILES},
        "rejected %": float(100 * (rejected & counted).sum() / max(1, counted.sum())),
        "errors": float(sum(responses.errors(TOO_MANY_REQUESTS).values())),
    }


def tables(series: Series) -> list[Table]:
    """Latency and goodput by load."""
    rows = []
    for load in LOADS:
        key = f"{load} %/{SERVER}"
        rows.append(
            [
                f"{load} %",
                spread_cell(series, f"{key}/sent"),
                spread_cell(series, f"{key}/goodput"),
                ratio_cell(series, f"{key}/goodput", f"{CAPACITY}/rate"),
                *(spread_cell(series, f"{key}/p{p} ms", ",.1f") for p in PERCENTILES),
                spread_cell(series, f"{key}/rejected %", ".1f"),
                spread_cell(series, f"{key}/errors"),
            ]
        )
    columns = ["load", "sent/s", "200/s", "÷ capacity"]
    columns += [*(f"p{p}, ms" for p in PERCENTILES), "429, %", "errors"]
    capacity = spread_cell(series, f"{CAPACITY}/rate")
    note = f"Capacity, with {CLIENTS} clients: {capacity} sentences/s."
    if not min(series[f"{max(LOADS)} %/{SERVER}/rejected %"]):
        note += " In some rounds the queue did not fill up, so the overload figures are too good."
    return [Table(f"Random arrivals, {SERVER}", columns, rows, note)]
