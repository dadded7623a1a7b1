"""How soon the int8 server is ready, what memory it has then, and after many mixed requests."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import texts
from benchmarks.load import REFUSED, LoadError, post
from benchmarks.parts.latency import MOST_CLIENTS
from benchmarks.processes import Server
from benchmarks.report import Table, cell
from benchmarks.rounds import Series
from benchmarks.stage import Plan, Stage, ask_similarity, embed, serve
from benchmarks.watch import Watch

WHO = "server int8"
STARTS = 5
LENGTHS = (60, 256)  # tokens at most; the latter in one of ten requests
KINDS = (1, 2, 32, 64, 512)  # sentences: mixtures of them, a pair, mixtures, all pairs, mixtures
SHARES = (0.9, 0.094, 0.005, 0.0008, 0.0002)
AGAIN = 1 / 3  # of the requests are for what was asked before
_AT_A_TIME = 5000  # requests that are written down at once
_SETTLE_SECONDS = 2.0


def run(plan: Plan, stage: Stage) -> Series:
    """Start it some times; ask the last one, and watch."""
    starts: list[float] = []
    for _ in range(STARTS):
        server = serve("int8")
        starts.append(server.start_seconds)
        if len(starts) < STARTS:
            server.close()
    plan.tell(f"  ready after {', '.join(f'{s:.2f}' for s in starts)} s")
    try:
        return {f"{WHO}/start/s": starts, **_soak(plan, stage, server)}
    finally:
        server.close()


def _soak(plan: Plan, stage: Stage, server: Server) -> Series:
    time.sleep(_SETTLE_SECONDS)
    idle, refused = server.resident_bytes, 0
    with Watch(server) as watch:
        for part in range(-(-plan.requests // _AT_A_TIME)):
            count = min(_AT_A_TIME, plan.requests - part * _AT_A_TIME)
            answers = stage.closed(server, list(requests(f"soak {part}", count)), MOST_CLIENTS)
            if others := answers.others(REFUSED):  # which long lists that meet may lead to
                raise LoadError(f"There were answers other than 200 and 429: {others}.")
            refused += int((answers.status == REFUSED).sum())
            plan.tell(
                f"  {part * _AT_A_TIME + count:,} requests: {server.resident_bytes / 1e6:.0f} MB"
            )
    time.sleep(_SETTLE_SECONDS)
    after, remembered = server.resident_bytes, _remembered(server)
    return {
        f"{WHO}/idle/MB": [idle / 1e6],
        f"{WHO}/after/MB": [after / 1e6],
        f"{WHO}/after/remembered MB": [remembered / 1e6],
        f"{WHO}/after/growth %": [100 * (after / idle - 1)],
        f"{WHO}/after/requests": [float(plan.requests)],
        f"{WHO}/after/refused": [float(refused)],
        f"{WHO}/watched/s": [sample.seconds for sample in watch.samples],
        f"{WHO}/watched/MB": [sample.megabytes for sample in watch.samples],
    }


def requests(name: str, count: int) -> Iterator[bytes]:
    """Mostly single sentences, some pairs, a few lists; a third of them not new."""
    chance = np.random.default_rng(texts.seed(name))
    asked: list[bytes] = []
    for size in chance.choice(KINDS, size=count, p=SHARES):
        if asked and chance.random() < AGAIN:
            yield asked[chance.integers(len(asked))]
            continue
        drawn, longest = f"{name} {len(asked)}", chance.choice(LENGTHS, p=(0.9, 0.1))
        written = texts.write(texts.mixed(drawn, size, longest=longest), drawn)
        asked.append(_ASKED.get(size, embed)(written))
        yield asked[-1]


_ASKED: dict[int, Callable[[list[str]], bytes]] = {
    2: lambda pair: ask_similarity([pair]),
    64: lambda inputs: post("/matrix", {"inputs": inputs, "metric": "js", "top_k": 9}),
}


def _remembered(server: Server) -> float:
    """Bytes in the server's cache, as it says itself."""
    lines = server.get("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("lattemix_cache_bytes"))


def tables(series: Series) -> list[Table]:
    """One."""
    rows = [
        ["start to ready, s", cell(series, f"{WHO}/start/s", ".2f")],
        ["resident when ready, MB", cell(series, f"{WHO}/idle/MB")],
        [
            f"resident after {cell(series, f'{WHO}/after/requests')} mixed requests, MB",
            cell(series, f"{WHO}/after/MB"),
        ],
        [
            "of that, remembered mixtures by its own count, MB",
            cell(series, f"{WHO}/after/remembered MB"),
        ],
        ["of the requests, refused with 429", cell(series, f"{WHO}/after/refused")],
        ["growth, %", cell(series, f"{WHO}/after/growth %", ".1f")],
    ]
    return [Table("Memory and start, server int8", ["", ""], rows)]
