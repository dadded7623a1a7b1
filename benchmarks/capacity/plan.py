"""What saturates first, and what one, ten and a hundred hosts serve."""

import math
from typing import NamedTuple

import numpy as np

from benchmarks.capacity import costs
from benchmarks.capacity.costs import Gpu
from benchmarks.capacity.mixes import MIXES, Mix
from benchmarks.capacity.simulation import Host, HostCost, Model, Outcome, simulate
from benchmarks.report import Table
from benchmarks.traffic import poisson_arrivals

LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
_SEED = "capacity"
_DRAWN = 4096  # sentences


class Limits(NamedTuple):
    """Requests per second that each resource allows."""

    process: float  # Python in one process, with one interpreter lock
    gpu: float
    pcie: float
    network: float
    cores: float  # of the host, for as many processes as fit

    @property
    def host(self) -> float:
        """Requests per second of a host with one GPU and as many processes as needed."""
        return min(self.gpu, self.pcie, self.network, self.cores)

    @property
    def first(self) -> str:
        """The resource that saturates first."""
        shared = self._asdict()
        del shared["process"]
        return min(shared, key=shared.__getitem__)

    @property
    def processes(self) -> int:
        """Processes that reach `host`."""
        return math.ceil(self.host / self.process)


def mean_batch_seconds(mix: Mix, model: Model) -> float:
    """Seconds of the device per sentence in full batches of similar lengths."""
    lengths = np.sort(mix.lengths(_SEED, _DRAWN))
    total, start = 0.0, 0
    while start < len(lengths):
        end = start + 1
        while end < len(lengths) and (
            model.padded(int(lengths[end])) * (end + 1 - start) <= model.token_budget
        ):
            end += 1
        total += model.seconds(lengths[start:end].tolist())
        start = end
    return total / len(lengths)


def core_seconds(mix: Mix, model: Model) -> float:
    """CPU seconds of a request and of its client, for a model that runs on the host's cores."""
    cost = costs.HOST_COSTS[mix.name]
    host = cost.loop + cost.tokenizer + cost.model + costs.CLIENT_SECONDS
    return host + mix.sentences * mean_batch_seconds(mix, model)


def limits(mix: Mix, model: Model, cost: HostCost, response_bytes: float) -> Limits:
    """Requests per second that each resource of a host with one GPU allows."""
    python = cost.loop + cost.model
    return Limits(
        process=1 / python,
        gpu=1 / (mix.sentences * mean_batch_seconds(mix, model)),
        pcie=costs.PCIE_BYTES / (mix.sentences * costs.MIXTURE_BYTES),
        network=costs.NETWORK_BYTES / response_bytes,
        cores=costs.HOST_CORES / (python + cost.tokenizer),
    )


def run(mix: Mix, model: Model, cost: HostCost, host: Host, rate: float, seconds: float) -> Outcome:
    """Simulate random arrivals."""
    arrivals = poisson_arrivals(f"{_SEED} {rate}", rate, seconds)
    size = mix.sentences
    lengths = mix.lengths(_SEED, size * len(arrivals)).tolist()
    return simulate(arrivals, lambda i: lengths[i * size : (i + 1) * size], model, cost, host)


def requests(mix: Mix) -> int:
    """Number of requests in a simulation."""
    return 3000 if mix.sentences < 8 else 800


def gpu_limits(mix: Mix, gpu: Gpu) -> Limits:
    """Limits by the parameters in `costs`."""
    cost, response = costs.HOST_COSTS[mix.name], costs.RESPONSE_BYTES[mix.name]
    return limits(mix, gpu.served(), cost, response)


def sources() -> Table:
    """Where the speeds of the GPUs come from."""
    rows = [
        [
            gpu.name,
            f"{gpu.tokens_per_second / 1e6:.2f}",
            gpu.model,
            gpu.source,
            f"{gpu.default_tokens / 1e6:.1f}",
            f"{gpu.served().batch_seconds * 1000:.1f}",
        ]
        for gpu in costs.GPUS
    ]
    columns = ["GPU", "M tokens/s", "of", "source", "`default`, M tokens/s", "batch, ms"]
    return Table("Published speeds", columns, rows)


def capacities() -> Table:
    """What saturates first by GPU and mix."""
    rows = []
    for mix in MIXES:
        for gpu in costs.GPUS:
            limit = gpu_limits(mix, gpu)
            rows.append(
                [
                    mix.name,
                    gpu.name,
                    f"{limit.gpu:,.0f}",
                    f"{limit.process:,.0f}",
                    f"{limit.processes}",
                    f"{limit.host:,.0f}",
                    limit.first,
                    f"{limit.host * costs.RESPONSE_BYTES[mix.name] * 8e-9:.1f}",
                    *(f"{0.7 * limit.host * mix.sentences * n:,.0f}" for n in (1, 10, 100)),
                ]
            )
    columns = ["requests", "GPU", "GPU, requests/s", "process, requests/s", "processes"]
    columns += ["host, requests/s", "limit", "Gbit/s"]
    columns += [f"{n} hosts at 70 %, sentences/s" for n in (1, 10, 100)]
    return Table("One GPU per host", columns, rows)


def latencies(gpu: Gpu, mix: Mix, processes: int) -> Table:
    """p50 and p99 by load on a host with some processes."""
    limit, cost = gpu_limits(mix, gpu), costs.HOST_COSTS[mix.name]
    capacity = min(limit.host, processes * limit.process)
    rows = []
    for load in LOADS:
        rate = load * capacity
        outcome = run(mix, gpu.served(), cost, Host(processes), rate, requests(mix) / rate)
        row = [f"{100 * load:.0f} %", f"{rate:,.0f}", f"{rate * mix.sentences:,.0f}"]
        row += [f"{outcome.milliseconds(percentile):.1f}" for percentile in (50, 99)]
        rows.append(row + [f"{100 * share:.0f}" for share in outcome.busy.values()])
    columns = ["load", "requests/s", "sentences/s", "p50, ms", "p99, ms"]
    columns += ["Python busy, %", "tokenizer, %", "GPU, %"]
    return Table(f"{mix.name}, {gpu.name}, {processes} processes", columns, rows)
