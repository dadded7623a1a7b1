"""`make soak`: mixed traffic at half the capacity, then two minutes of overload, then half again.

Fails if memory, open files or threads grow, if a status is neither 200 nor 429, or if the server
does not recover from the overload.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.load_generator import OK, TOO_MANY_REQUESTS, Responses
from benchmarks.processes import Sample, Server, monitored
from benchmarks.systems import serve
from benchmarks.traffic import mixed_requests, poisson_arrivals

PLOT = Path(__file__).parent / "results" / "soak.png"
CLIENTS, CAPACITY_REQUESTS = 16, 1500  # of a capacity run
LOAD, OVERLOAD = 0.5, 3.0  # of the capacity
INTERVAL_SECONDS, OVERLOAD_SECONDS = 20.0, 120.0
INTERVALS_AFTER = 3  # of normal load after the overload; the server trims memory every 30 s
# Limits of the growth from the second fifth of the run, when caches are warm, to the last fifth.
MAX_MEMORY_GROWTH, MAX_FILES_GROWTH, MAX_THREADS_GROWTH = 0.05, 16, 2
# The first overload leaves some 5 % in Python's heap, later ones add nothing.
MAX_OVERLOAD_GROWTH = 0.1
MAX_LATENCY_MS = 10_000  # of accepted requests during the overload


class Interval(NamedTuple):
    """Latencies in milliseconds and statuses of some seconds of traffic."""

    end: float  # seconds since the server's start
    p50: float
    p99: float
    slowest: float
    statuses: Counter[int]


def summarise(responses: Responses, end: float) -> Interval:
    """Latencies and statuses of responses."""
    p50, p99, slowest = (responses.milliseconds(percentile) for percentile in (50, 99, 100))
    return Interval(end, p50, p99, slowest, Counter(responses.status.tolist()))


def find_growth(samples: Sequence[Sample]) -> list[str]:
    """Resources that grew from the second fifth of the samples to the last, as sentences."""
    fifth = len(samples) // 5
    if not fifth:
        return ["There are too few samples to detect growth."]

    # Minima, since connections come and go; a leak raises the minimum too.
    def minimum(part: Sequence[Sample], field: str) -> float:
        return float(min(getattr(sample, field) for sample in part))

    problems = []
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    for field, limit in (
        ("megabytes", MAX_MEMORY_GROWTH * minimum(early, "megabytes")),
        ("files", MAX_FILES_GROWTH),
        ("threads", MAX_THREADS_GROWTH),
    ):
        before, after = minimum(early, field), minimum(late, field)
        if after - before > limit:
            problems.append(f"{field} grew from {before:,.0f} to {after:,.0f}.")
    return problems


def find_errors(intervals: Sequence[Interval]) -> list[str]:
    """Statuses other than 200 and 429, as sentences."""
    statuses = sum((interval.statuses for interval in intervals), Counter[int]())
    return [
        f"{count:,} requests got status {status} (0: no response)."
        for status, count in sorted(statuses.items())
        if status not in (OK, TOO_MANY_REQUESTS)
    ]


def find_overload_problems(
    normal: Sequence[Interval], overload: Interval, after: Sequence[Interval]
) -> list[str]:
    """Failed conditions of the overload and the normal load after it, as sentences."""
    problems = []
    if not overload.statuses.get(TOO_MANY_REQUESTS):
        problems.append("No request was rejected: the load was too low for an overload.")
    if overload.slowest > MAX_LATENCY_MS:
        problems.append(f"An accepted request took {overload.slowest / 1000:.1f} s.")
    if rejected := sum(interval.statuses.get(TOO_MANY_REQUESTS, 0) for interval in after):
        problems.append(f"{rejected:,} requests were rejected after the overload.")
    p99, usual = (max(interval.p99 for interval in part) for part in (after, normal))
    if p99 > usual:
        problems.append(f"p99 was {p99:,.0f} ms after the overload, at most {usual:,.0f} before.")
    return problems


def _measure_capacity(server: Server) -> float:
    """Mixed requests per second: the best of a few runs, since noise can only lower it."""
    runs = [list(mixed_requests(f"capacity {run}", CAPACITY_REQUESTS)) for run in range(3)]
    return max(server.closed_loop(requests, CLIENTS).rate for requests in runs)


def _run_interval(
    server: Server, seed: str, rate: float, seconds: float = INTERVAL_SECONDS
) -> Interval:
    """Send mixed requests at a rate."""
    due = poisson_arrivals(seed, rate, seconds)
    responses = server.open_loop(list(mixed_requests(seed, len(due))), due)
    sample = server.sample()
    interval = summarise(responses, sample.seconds)
    latency = f"p50 {interval.p50:,.0f} ms, p99 {interval.p99:,.0f} ms"
    resources = f"{sample.megabytes:.0f} MB, {sample.files} files, {sample.threads} threads"
    print(f"{rate:,.0f}/s: {dict(interval.statuses)}, {latency}, {resources}", flush=True)
    return interval


def main(minutes: Annotated[float, typer.Option(help="Minutes of normal load.")] = 30) -> None:
    """Run a soak test of the int8 server."""
    normal: list[Interval] = []
    with closing(serve("default:int8")) as server:
        capacity = _measure_capacity(server)
        print(f"Capacity: {capacity:,.0f} mixed requests per second", flush=True)
        rate, end = LOAD * capacity, time.perf_counter() + 60 * minutes
        with monitored(server) as samples:
            while time.perf_counter() < end:
                normal.append(_run_interval(server, f"normal {len(normal)}", rate))
            warm = samples.copy()
            overload = _run_interval(server, "overload", OVERLOAD * capacity, OVERLOAD_SECONDS)
            after = [_run_interval(server, f"after {i}", rate) for i in range(INTERVALS_AFTER)]
    from benchmarks import plots  # here, so that worker processes do not load matplotlib

    plots.draw_soak(samples, warm[-1].seconds, [*normal, overload, *after], PLOT)
    problems = [*find_growth(warm), *find_errors([*normal, overload, *after])]
    problems += find_overload_problems(normal, overload, after)
    before, left = (
        np.median([s.megabytes for s in part[-int(INTERVAL_SECONDS) :]]) for part in (warm, samples)
    )
    if left > (1 + MAX_OVERLOAD_GROWTH) * before:
        problems.append(f"The overload raised the memory from {before:,.0f} to {left:,.0f} MB.")
    for problem in problems:
        print(f"Failed: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    typer.run(main)
