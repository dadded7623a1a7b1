"""Measure what a request costs on the host, with a model that costs nothing.

The server is the real one, as it would run on a GPU: batches of up to 16,384 tokens, one at a time.
Only ONNX Runtime's session is replaced, by one that copies a result that it has already.
"""

import os
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.capacity.mixes import Mix
from benchmarks.capacity.simulation import HostCost
from benchmarks.load_generator import HOST
from benchmarks.processes import Server, free_port
from benchmarks.rounds import Figures
from benchmarks.texts import SPECIAL_TOKENS, write

CLIENTS = 32
_TICKS = os.sysconf("SC_CLK_TCK")
_BATCH_NICENESS = 5  # of the threads that run batches, see app/engine/batcher.py


class NullSession:
    """Takes the place of `lattemix.session.Session`."""

    provider = "cuda"

    def __init__(self, artifact: Any, *_: object, **__: object) -> None:
        manifest = artifact.manifest
        shape = (1, 1, manifest.latent_dims, manifest.classes)
        odds = np.exp(np.random.default_rng(0).normal(0, 1, shape)).astype(np.float32)
        self._mixture = odds / odds.sum(axis=-1, keepdims=True)

    def run(self, input_ids: NDArray[Any], mask: NDArray[Any], pool: NDArray[Any]) -> NDArray[Any]:
        """Return one mixture for all texts."""
        rows, groups = pool.shape[:2]
        if len(self._mixture) < rows or self._mixture.shape[1] != groups:
            self._mixture = np.repeat(self._mixture[:1, :1], rows, axis=0).repeat(groups, axis=1)
        mixtures: NDArray[np.float32] = self._mixture[:rows].copy()
        return mixtures


def serve(arguments: Sequence[str]) -> None:
    """Run `lattemix serve` with the null session."""
    from lattemix.cli import cli

    with mock.patch("lattemix.encoder.Session", NullSession):
        cli(["serve", *arguments])


def start() -> Server:
    """Start the server in a process of its own."""
    port = free_port()
    code = "import sys; from benchmarks.capacity.host import serve; serve(sys.argv[1:])"
    options = ["--port", str(port), "--model", "default:int8"]
    return Server([sys.executable, "-c", code, *options], port, "/ready")


class Seconds(NamedTuple):
    """CPU time of a process by the job of its threads."""

    loop: float
    tokenizer: float
    model: float


def thread_seconds(pid: int) -> Seconds:
    """CPU time so far: the main thread runs the event loop, threads with niceness run batches."""
    seconds = [0.0, 0.0, 0.0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(") ")[2].split()
        kind = 0 if int(task.name) == pid else 2 if int(fields[16]) == _BATCH_NICENESS else 1
        seconds[kind] += (int(fields[11]) + int(fields[12])) / _TICKS
    return Seconds(*seconds)


def requests(mix: Mix, seed: str, count: int) -> list[bytes]:
    """Distinct requests of a mix."""
    lengths = mix.lengths(seed, count * mix.sentences) - SPECIAL_TOKENS  # in words
    texts = write(lengths, seed)
    size = mix.sentences
    return [mix.request(texts[i : i + size]) for i in range(0, len(texts), size)]


def measure(mix: Mix, server: Server, seconds: float, number: int) -> Figures:
    """Send requests as fast as they are answered, and divide the CPU time by their number."""
    seed = f"host {number}"
    trial = requests(mix, f"{seed} trial", 64)
    rate = server.closed_loop(trial, CLIENTS).check().rate
    batch = requests(mix, seed, max(CLIENTS, round(rate * seconds)))
    before = thread_seconds(server.pid)
    responses = server.closed_loop(batch, CLIENTS).check()
    after = thread_seconds(server.pid)
    spent = [(b - a) / len(batch) * 1e6 for a, b in zip(before, after, strict=True)]
    figures = dict(
        zip((f"{name} us" for name in HostCost.__dataclass_fields__), spent, strict=True)
    )
    return {
        **figures,
        "requests/s": responses.rate,
        "client us": responses.cpu / len(batch) * 1e6,
        "bytes": float(response_bytes(server.port, batch[0])),
    }


def response_bytes(port: int, request: bytes) -> int:
    """Size of a response's body."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    url = f"http://{HOST}:{port}{first.split()[1]}"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
        return len(response.read())
