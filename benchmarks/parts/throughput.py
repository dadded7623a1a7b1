"""Sentences per second: bulk requests, mixed lengths, pairs, request sizes and static models."""

from collections.abc import Callable
from functools import partial

from benchmarks import texts
from benchmarks.load_generator import Responses
from benchmarks.report import Table, ratio_cell, spread_cell, system_names, workload_names
from benchmarks.rounds import Figures, Measurement, Plan, Series, Spread, run_rounds
from benchmarks.systems import AnyWorker, Service, Systems, category, is_ours
from benchmarks.texts import Lengths
from benchmarks.traffic import chunks, embed

TEXTS, CLIENTS = 32, 8  # texts per request, concurrent requests
PAIR_CLIENTS = 32  # where a request is one pair
STATIC, BY_SIZE = "static", "by texts per request"
SIZES = (32, 128, 512)  # texts per request
_WARM_UP_SENTENCES = 256
_STATIC_TOKENS = 0.5  # tokens of a sentence, relative to their cost: static models are fast

_BEST_PEER = "Best peer: the fastest library or server of others at the same precision."
_NOTES = {STATIC: "Best peer: model2vec.", BY_SIZE: ""}

DrawLengths = Callable[[str], Lengths]  # takes a seed


def run(plan: Plan, systems: Systems) -> Series:
    """Measure all systems on bulk and mixed lengths, and servers on pairs and by request size.

    quick: bulk only.
    """
    bulk = partial(texts.sts_lengths, count=plan.sentences())
    services = systems.services(json=True)
    series = run_rounds(_measurements(systems.libraries, services, "bulk", bulk), plan.rounds)
    many = partial(texts.sts_lengths, count=plan.sentences(_STATIC_TOKENS))
    fast = {"server fast": Service(partial(systems.server, "int8", "fast"), embed)}
    series |= run_rounds(_measurements(systems.static, fast, STATIC, many), plan.rounds)
    if plan.quick:
        return series
    mixed = partial(texts.mixed_lengths, count=plan.sentences(tokens=57))
    measurements = _measurements(systems.libraries, services, "mixed lengths", mixed)
    series |= run_rounds(measurements, plan.few_rounds)
    for size, clients in ((1, PAIR_CLIENTS), (TEXTS, CLIENTS)):
        pairs: dict[str, Measurement] = {
            f"pairs, {size} per request/{name}": partial(
                _pairs, service, plan.sentences(), size, clients
            )
            for name, service in systems.services().items()
        }
        series |= run_rounds(pairs, plan.few_rounds)
    many = partial(texts.sts_lengths, count=4 * plan.sentences())
    service = systems.services()["server int8"]
    sizes = {f"{BY_SIZE}/library int8": partial(_encode, many, systems.library("int8"))} | {
        f"{BY_SIZE}/server int8, {size}": partial(_request, service, many, f"{size}", size=size)
        for size in SIZES
    }
    return series | run_rounds(sizes, plan.rounds)


def _measurements(
    workers: dict[str, AnyWorker], services: dict[str, Service], workload: str, draw: DrawLengths
) -> dict[str, Measurement]:
    """One measurement per system, on sentences of the same lengths, after a warm-up."""
    measurements: dict[str, Measurement] = {}
    for name, worker in workers.items():
        measurements[f"{workload}/{name}"] = partial(_encode, draw, worker)
    for name, service in services.items():
        measurements[f"{workload}/{name}"] = partial(_request, service, draw, name)
    for measurement in measurements.values():
        measurement(-1)
    return measurements


def _encode(draw: DrawLengths, worker: AnyWorker, number: int) -> Figures:
    """All texts in one call, after a short one: the system has been idle."""
    worker(texts.sentences(f"warm-up {number}", _WARM_UP_SENTENCES))
    lengths = draw(f"bulk {number}")
    return {"rate": len(lengths) / worker(texts.write(lengths, f"bulk {number}"))}


def _request(
    service: Service, draw: DrawLengths, name: str, number: int, size: int = TEXTS
) -> Figures:
    """The same lengths in requests; the words differ by system, since servers cache."""
    sentences = texts.write(draw(f"bulk {number}"), f"{name} {number}")
    requests = [service.embed(chunk) for chunk in chunks(sentences, size)]
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
    rows = [
        [
            name,
            spread_cell(series, f"{workload}/{name}/rate"),
            ratio_cell(series, f"{workload}/{name}/rate", f"{workload}/{peer}/rate"),
            spread_cell(series, f"{workload}/{name}/client cpu ms", ".2f"),
        ]
        for name in system_names(series, workload, "rate")
        for peer in [best_peer(series, workload, name)]
    ]
    ratio = "÷ library" if workload == BY_SIZE else "÷ best peer"
    columns = ["", f"{unit}/s", ratio, "client CPU, ms per request"]
    return Table(f"Throughput, {workload}", columns, rows, _NOTES.get(workload, _BEST_PEER))


def best_peer(series: Series, workload: str, name: str) -> str | None:
    """The fastest system of others that is comparable with a system, or our library by size."""
    if workload == BY_SIZE:
        return "library int8"
    peers = [
        other
        for other in system_names(series, workload, "rate")
        if not is_ours(other) and (workload == STATIC or category(other) == category(name))
    ]
    return max(
        peers, key=lambda peer: Spread.of(series[f"{workload}/{peer}/rate"]).median, default=None
    )
