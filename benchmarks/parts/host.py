"""What the service costs besides the model: a model that costs nothing, and the static model."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import null_model, texts, traffic
from benchmarks.in_process import open_artifact
from benchmarks.load_generator import post
from benchmarks.processes import Server
from benchmarks.report import Table, spread_cell
from benchmarks.rounds import Figures, Measurement, Plan, Series, run_rounds
from benchmarks.systems import Systems, serve
from benchmarks.traffic import chunks
from model_store import Store

NPY, JSON = "application/x-npy", "application/json"
_WARM_UP_TEXTS = 512


class Workload(NamedTuple):
    """Requests of one kind to one server."""

    model: str
    request: Callable[[Sequence[str]], bytes]
    size: int  # texts per request
    clients: int
    share: float = 1.0  # of the sentences of a measurement


def _pairs(inputs: Sequence[str]) -> bytes:
    return post("/similarity", {"pairs": chunks(inputs, 2)})


def _embed(inputs: Sequence[str], accept: str = NPY, **options: str) -> bytes:
    return post("/embed", {"inputs": inputs, **options}, accept)


WORKLOADS = {
    "null model: 64 pairs, 8 clients": Workload("null", _pairs, 128, 8),
    "null model of the default's shape: 64 pairs, 8 clients": Workload("null-wide", _pairs, 128, 8),
    "null model: 1 sentence, 64 clients": Workload("null", traffic.embed, 1, 64, 0.2),
    "fast: 64 pairs, 8 clients": Workload("fast", _pairs, 128, 8),
    "fast: 1 sentence, 64 clients": Workload("fast", traffic.embed, 1, 64, 0.2),
    "fast: 512 mixtures, npy": Workload("fast", traffic.embed, 512, 8),
    "fast: 512 mixtures, base64": Workload(
        "fast", partial(_embed, accept=JSON, format="base64"), 512, 8
    ),
    "fast: 512 vectors, npy": Workload("fast", _embed, 512, 8),
    "fast: 512 vectors, binary npy": Workload("fast", partial(_embed, dtype="binary"), 512, 8),
}


def run(plan: Plan, systems: Systems) -> Series:
    """Measure every workload in each round."""
    count = round(15_000 * plan.seconds / 1024) * 1024
    with ExitStack() as stack:
        store = Store(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        source = open_artifact("int8")
        null_model.publish(source, store, "null", latent_dims=8, classes=8)
        null_model.publish(source, store, "null-wide", latent_dims=100, classes=20)
        servers = {
            "null": serve("null", store.root),
            "null-wide": serve("null-wide", store.root),
            "fast": serve("fast"),
        }
        for server in servers.values():
            stack.callback(server.close)
            _warm_up(server)
        measurements: dict[str, Measurement] = {
            f"host/{name}": partial(_measure, servers[each.model], each, name, count)
            for name, each in WORKLOADS.items()
        }
        return run_rounds(measurements, plan.rounds)


def _warm_up(server: Server) -> None:
    """Send all words, which the tokenizer caches."""
    words = chunks(texts.vocabulary(), 20)
    for size in (1, _WARM_UP_TEXTS):
        inputs = [" ".join(each) for each in words]
        server.closed_loop([traffic.embed(chunk) for chunk in chunks(inputs, size)], 8).check()


def _measure(server: Server, workload: Workload, name: str, count: int, number: int) -> Figures:
    size = workload.size
    count = max(1, round(count * workload.share / size)) * size
    sentences = texts.sentences(f"{name} {number}", count)
    requests = [workload.request(chunk) for chunk in chunks(sentences, size)]
    cpu = server.cpu_seconds()
    responses = server.closed_loop(requests, workload.clients).check()
    return {
        "rate": count / responses.elapsed,
        "p50 ms": responses.milliseconds(50),
        "server cores": (server.cpu_seconds() - cpu) / responses.elapsed,
        "client cores": responses.cpu / responses.elapsed,
    }


def tables(series: Series) -> list[Table]:
    """Sentences per second, and the cores that server and client use for them."""
    rows = [
        [
            name,
            spread_cell(series, f"host/{name}/rate"),
            spread_cell(series, f"host/{name}/p50 ms", ".1f"),
            spread_cell(series, f"host/{name}/server cores", ".2f"),
            spread_cell(series, f"host/{name}/client cores", ".2f"),
        ]
        for name in WORKLOADS
    ]
    columns = ["", "sentences/s", "p50, ms", "server, cores", "client, cores"]
    return [Table("The service besides the model", columns, rows)]
