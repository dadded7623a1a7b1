"""A running server under more work than it can do: what it answers, and whether `/health` waits.

Each kind of work is sent by as many clients as keep the model busy; a process of its own asks
`/health` and `/ready` meanwhile. Everything shares the machine, clients included.
"""

import asyncio
import json
import multiprocessing
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from benchmarks.throughput import RESULTS, VOCABULARY

PORT = 8765
SECONDS = 15.0
LATTEMIX = Path(sys.executable).parent / "lattemix"


class Work(NamedTuple):
    """A kind of request, and how many clients send it without a pause."""

    path: str
    body: Callable[[random.Random], dict[str, Any]]
    sentences: int
    clients: int


def sentence(chance: random.Random) -> str:
    """A word salad of 4 to 20 words."""
    return " ".join(chance.choices(VOCABULARY.split(), k=chance.randint(4, 20)))


def sentences(chance: random.Random, count: int) -> list[str]:
    """As many of them."""
    return [sentence(chance) for _ in range(count)]


WORK = {
    "pairs, one a request": Work("/similarity", lambda c: {"pairs": [sentences(c, 2)]}, 2, 32),
    "32 mixtures a request": Work("/embed", lambda c: {"inputs": sentences(c, 32)}, 32, 8),
    "1,024 mixtures a request": Work("/embed", lambda c: {"inputs": sentences(c, 1024)}, 1024, 3),
    "all pairs of 512 by js": Work(
        "/matrix", lambda c: {"inputs": sentences(c, 512), "metric": "js", "top_k": 9}, 512, 3
    ),
}


async def _send(work: Work) -> tuple[int, float]:
    """Sentences answered, and in how many seconds."""
    done, start = 0, time.perf_counter()

    async def client(number: int) -> None:
        nonlocal done
        chance = random.Random(f"{work.path} {work.sentences} {number}")  # nothing asked before
        async with httpx.AsyncClient(timeout=120) as session:
            while time.perf_counter() - start < SECONDS:
                url = f"http://127.0.0.1:{PORT}{work.path}"
                answer = await session.post(url, json=work.body(chance))
                answer.raise_for_status()
                done += work.sentences

    await asyncio.gather(*map(client, range(work.clients)))
    return done, time.perf_counter() - start


def probe(connection: Any) -> None:
    """Ask `/health` and `/ready` until told to stop; send the milliseconds each answer took."""
    asked = HTTPConnection("127.0.0.1", PORT, timeout=60)
    found: dict[str, list[float]] = {"/health": [], "/ready": []}
    while not connection.poll(0.02):
        for path, milliseconds in found.items():
            start = time.perf_counter()
            asked.request("GET", path)
            answer = asked.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            milliseconds.append((time.perf_counter() - start) * 1000)
    connection.send(found)


def measure(work: Work) -> dict[str, Any]:
    """Sentences per second, and how the probes fared."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=probe, args=(theirs,))
    process.start()
    done, seconds = asyncio.run(_send(work))
    ours.send(None)
    found = ours.recv()
    process.join()
    quantiles = {path: np.percentile(times, [50, 99, 100]) for path, times in found.items()}
    return {"rate": done / seconds} | {path: q.tolist() for path, q in quantiles.items()}


def main() -> None:
    """Run every kind of work against `lattemix serve`, print and keep the results."""
    command = [LATTEMIX, "serve", "--port", str(PORT)]
    results = {}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_until_ready()
            print(
                "                          sentences/s  /health p50, p99, max ms  /ready p50, p99"
            )
            for name, work in WORK.items():
                result = results[name] = measure(work)
                health = "  ".join(f"{ms:5.1f}" for ms in result["/health"])
                ready = "  ".join(f"{ms:5.1f}" for ms in result["/ready"][:2])
                print(f"{name:<26} {result['rate']:7.0f}      {health}      {ready}")
        finally:
            server.terminate()
    RESULTS.mkdir(exist_ok=True)
    record = {"machine": platform.processor() or platform.machine(), "results": results}
    (RESULTS / "service.json").write_text(json.dumps(record, indent=2) + "\n")


def _wait_until_ready() -> None:
    for _ in range(300):
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/ready").is_success:
                return
        except httpx.ConnectError:
            pass
        time.sleep(0.1)
    raise SystemExit("The server did not start.")


if __name__ == "__main__":
    main()
