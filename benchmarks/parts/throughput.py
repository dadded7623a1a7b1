"""Sentences per second: bulk requests, mixed lengths, and pairs."""

from collections.abc import Callable
from functools import partial

from benchmarks import texts
from benchmarks.load_generator import Responses
from benchmarks.processes import Worker
from benchmarks.report import Table, ratio_cell, spread_cell, system_names, workload_names
from benchmarks.rounds import Figures, Measurement, Plan, Series, run_rounds
from benchmarks.systems import MISSING, PRECISIONS, Service, Systems
from benchmarks.texts import Lengths
from benchmarks.traffic import chunks

TEXTS, CLIENTS = 32, 8  # texts per request, concurrent requests
PAIR_CLIENTS = 32  # where a request is one pair

DrawLengths = Callable[[str], Lengths]  # takes a seed


def run(plan: Plan, systems: Systems) -> Series:
    """Measure all systems on bulk and mixed lengths, and servers on pairs; quick: bulk only."""
    bulk = partial(texts.sts_lengths, count=plan.sentences())
    series = run_rounds(_measurements(systems, "bulk", bulk), plan.rounds)
    if plan.quick:
        return series
    mixed = partial(texts.mixed_lengths, count=plan.sentences(tokens=57))
    series |= run_rounds(_measurements(systems, "mixed lengths", mixed), plan.few_rounds)
    for size, clients in ((1, PAIR_CLIENTS), (TEXTS, CLIENTS)):
        pairs: dict[str, Measurement] = {
            f"pairs, {size} per request/{name}": partial(
                _pairs, service, plan.sentences(), size, clients
            )
            for name, service in systems.services().items()
        }
        series |= run_rounds(pairs, plan.few_rounds)
    return series


def _measurements(systems: Systems, workload: str, draw: DrawLengths) -> dict[str, Measurement]:
    """One measurement per system, on sentences of the same lengths."""
    measurements: dict[str, Measurement] = {}
    for precision in PRECISIONS:
        library = partial(systems.library, precision)
        measurements[f"library {precision}"] = partial(_encode, draw, library)
        plain = partial(systems.onnx_runtime, precision)
        measurements[f"ONNX Runtime {precision}"] = partial(_encode, draw, plain)
    if "sentence-transformers" not in MISSING:
        measurements["sentence-transformers"] = partial(
            _encode, draw, lambda: systems.sentence_transformers
        )
    for name, service in systems.services(json=True).items():
        measurements[name] = partial(_request, service, draw, name)
    return {f"{workload}/{name}": each for name, each in measurements.items()}


def _encode(draw: DrawLengths, start: Callable[[], Worker], number: int) -> Figures:
    """All texts in one call."""
    lengths = draw(f"bulk {number}")
    return {"rate": len(lengths) / start()(texts.write(lengths, f"bulk {number}"))}


def _request(service: Service, draw: DrawLengths, name: str, number: int) -> Figures:
    """The same lengths in requests; the words differ by system, since servers cache."""
    sentences = texts.write(draw(f"bulk {number}"), f"{name} {number}")
    requests = [service.embed(chunk) for chunk in chunks(sentences, TEXTS)]
    return _figures(len(sentences), service.start().closed_loop(requests, CLIENTS).check())


def _pairs(service: Service, count: int, size: int, clients: int, number: int) -> Figures:
    sentences = texts.sentences(f"{size} pairs {number}", count)
    requests = [service.similarity(chunks(chunk, 2)) for chunk in chunks(sentences, 2 * size)]
    return _figures(count // 2, service.start().closed_loop(requests, clients).check())


def _figures(count: int, responses: Responses) -> Figures:
    client_cpu = responses.cpu / len(responses.status) * 1000
    return {"rate": count / responses.elapsed, "client cpu ms": client_cpu}


def tables(series: Series) -> list[Table]:
    """One table per workload."""
    return [_table(series, workload) for workload in workload_names(series)]


def _table(series: Series, workload: str) -> Table:
    unit = "pairs" if workload.startswith("pairs") else "sentences"
    peer = "infinity" if unit == "pairs" else "sentence-transformers"
    rows = [
        [
            name,
            spread_cell(series, f"{workload}/{name}/rate"),
            ratio_cell(series, f"{workload}/{name}/rate", f"{workload}/{peer}/rate"),
            spread_cell(series, f"{workload}/{name}/client cpu ms", ".2f"),
        ]
        for name in system_names(series, workload, "rate")
    ]
    columns = ["", f"{unit}/s", f"÷ {peer}", "client CPU, ms per request"]
    return Table(f"Throughput, {workload}", columns, rows)
