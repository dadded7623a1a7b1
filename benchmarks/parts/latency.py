"""Single sentences from 1, 8 and 64 clients: how long each waits, and how many are answered.

Beside them, on the same sentences, the bare call that a lone client's wait is measured against,
and the same server's bulk throughput.
"""

from functools import partial

import numpy as np

from benchmarks import texts
from benchmarks.parts.throughput import AT_ONCE, CLIENTS
from benchmarks.report import Table, beside, cell, contestants, middle
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import PRECISIONS, Plan, Service, Stage, in_parts
from model_store import Precision

MOST_CLIENTS = 64
PERCENTILES = (50, 95, 99)
# Clients, and what of a turn's sentences they send: a lone one waits for each.
SHARES = {1: 0.3, 8: 0.7, MOST_CLIENTS: 1.5}


def run(plan: Plan, stage: Stage) -> Series:
    """Let servers and bare calls take turns on single sentences, those compared one by one."""
    turns: dict[str, Turn] = {}
    lone = round(plan.sentences() * SHARES[1])
    for precision in PRECISIONS:
        turns[f"{_named(1)}/bare call, {precision}"] = partial(_bare, stage, precision, lone)
    for name, service in stage.services().items():
        for clients, share in SHARES.items():
            # infinity takes several times as long for each.
            count = round(plan.sentences() * share / (3 if name == "infinity" else 1))
            turns[f"{_named(clients)}/{name}"] = partial(_singles, stage, service, clients, count)
        turns[f"bulk/{name}"] = partial(_bulk, stage, service, plan.sentences())
    return play(turns, plan.rounds, plan.tell)


def tables(series: Series) -> list[Table]:
    """One for each number of clients."""
    return [_table(series, clients) for clients in SHARES]


def _named(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


def _singles(stage: Stage, service: Service, clients: int, count: int, number: int) -> Figures:
    drawn = texts.write(texts.usual(f"single {number}", count), f"single {clients} {number}")
    requests = [service.ask([text]) for text in drawn]
    server = service.start()
    before = server.cpu_seconds
    answers = stage.closed(server, requests, clients).check()
    return {
        "rate": answers.rate,
        **{f"p{p} ms": answers.milliseconds(p) for p in PERCENTILES},
        "client cpu ms": answers.cpu / count * 1000,
        "server cpu ms": (server.cpu_seconds - before) / count * 1000,
    }


def _bare(stage: Stage, precision: Precision, count: int, number: int) -> Figures:
    drawn = texts.write(texts.usual(f"single {number}", count), f"single 1 {number}")
    seconds = np.array(stage.bare(precision)(drawn))
    found = {f"p{p} ms": float(np.percentile(seconds, p)) * 1000 for p in PERCENTILES}
    return {"rate": count / seconds.sum(), **found}


def _bulk(stage: Stage, service: Service, count: int, number: int) -> Figures:
    drawn = texts.write(texts.usual(f"single {number}", count), f"single bulk {number}")
    requests = [service.ask(part) for part in in_parts(drawn, AT_ONCE)]
    return {"rate": count / stage.closed(service.start(), requests, CLIENTS).check().elapsed}


def _table(series: Series, clients: int) -> Table:
    workload, lone = _named(clients), clients == 1
    rows = []
    for who in contestants(series, workload, "rate"):
        key, precision = f"{workload}/{who}", who.split()[-1]
        bottom = f"{workload}/bare call, {precision}/p50 ms" if lone else f"bulk/{who}/rate"
        times = [cell(series, f"{key}/p{p} ms", ".1f") for p in PERCENTILES]
        compared = beside(series, f"{key}/{'p50 ms' if lone else 'rate'}", bottom)
        costs = [middle(series, f"{key}/{whose} cpu ms", ".2f") for whose in ("client", "server")]
        rows.append([who, cell(series, f"{key}/rate"), *times, compared, *costs])
    columns = ["", "sentences/s", *(f"p{p}, ms" for p in PERCENTILES)]
    columns += ["p50 ÷ bare call's" if lone else "÷ bulk", "client's CPU, ms", "server's CPU, ms"]
    return Table(f"Single sentences, {workload}", columns, rows)
