"""Latency of single sentences with 1, 8 and 64 clients, beside bare calls of ONNX Runtime."""

from functools import partial

import numpy as np

from benchmarks import texts
from benchmarks.report import Table, ratio_cell, spread_cell, system_names
from benchmarks.rounds import Figures, Measurement, Plan, Series, run_rounds
from benchmarks.systems import PRECISIONS, Service, Systems
from model_store import Precision

PERCENTILES = (50, 95, 99)
# Sentences of a measurement by number of clients, relative to the plan: few clients take longer.
SHARES = {1: 0.3, 8: 0.7, 64: 1.5}


def run(plan: Plan, systems: Systems) -> Series:
    """Measure servers with every number of clients, and bare calls."""
    measurements: dict[str, Measurement] = {}
    for precision in PRECISIONS:
        count = round(plan.sentences() * SHARES[1])
        name = f"{workload_name(1)}/bare call {precision}"
        measurements[name] = partial(_calls, systems, precision, count)
    for name, service in systems.services().items():
        for clients, share in SHARES.items():
            # infinity is several times slower
            count = round(plan.sentences() * share / (3 if name.startswith("infinity") else 1))
            workload = workload_name(clients)
            measurements[f"{workload}/{name}"] = partial(_requests, service, clients, count)
    return run_rounds(measurements, plan.rounds)


def workload_name(clients: int) -> str:
    """Name of the workload with this number of clients."""
    return "1 client" if clients == 1 else f"{clients} clients"


def _requests(service: Service, clients: int, count: int, number: int) -> Figures:
    sentences = texts.sentences(f"{clients} clients {number}", count)
    requests = [service.embed([text]) for text in sentences]
    server = service.start()
    cpu = server.cpu_seconds()
    responses = server.closed_loop(requests, clients).check()
    return {
        "rate": responses.rate,
        **{f"p{p} ms": responses.milliseconds(p) for p in PERCENTILES},
        "client cpu ms": responses.cpu / count * 1000,
        "server cpu ms": (server.cpu_seconds() - cpu) / count * 1000,
    }


def _calls(systems: Systems, precision: Precision, count: int, number: int) -> Figures:
    sentences = texts.sentences(f"1 clients {number}", count)
    seconds = np.array(systems.bare_calls(precision)(sentences))
    percentiles = {f"p{p} ms": float(np.percentile(seconds, p)) * 1000 for p in PERCENTILES}
    return {"rate": count / seconds.sum(), **percentiles}


def tables(series: Series) -> list[Table]:
    """One table per number of clients."""
    return [_table(series, clients) for clients in SHARES]


def _table(series: Series, clients: int) -> Table:
    workload = workload_name(clients)
    rows = []
    for name in system_names(series, workload, "rate"):
        key, precision = f"{workload}/{name}", name.split()[-1]
        plain_call = f"{workload}/bare call {precision}/p50 ms"
        rows.append(
            [
                name,
                spread_cell(series, f"{key}/rate"),
                *(spread_cell(series, f"{key}/p{p} ms", ".1f") for p in PERCENTILES),
                ratio_cell(series, f"{key}/p50 ms", plain_call),
                spread_cell(series, f"{key}/client cpu ms", ".2f"),
                spread_cell(series, f"{key}/server cpu ms", ".2f"),
            ]
        )
    columns = ["", "sentences/s", *(f"p{p}, ms" for p in PERCENTILES)]
    columns += ["p50 ÷ bare call", "client CPU, ms", "server CPU, ms"]
    return Table(f"Single sentences, {workload}", columns, rows)
