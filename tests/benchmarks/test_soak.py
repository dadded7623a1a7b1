"""Pass and fail conditions of a soak test."""

from collections import Counter

import numpy as np

from benchmarks.load_generator import Responses
from benchmarks.processes import Sample
from benchmarks.soak import (
    Interval,
    find_errors,
    find_growth,
    find_overload_problems,
    summarise,
)


def samples(megabytes: list[float], files: int = 20, threads: int = 12) -> list[Sample]:
    return [Sample(second, size, files, threads) for second, size in enumerate(megabytes)]


def interval(p99: float, slowest: float = 100, **statuses: int) -> Interval:
    return Interval(20, 1, p99, slowest, Counter({int(s[1:]): n for s, n in statuses.items()}))


def test_warm_up_is_no_growth() -> None:
    warm_up = list(np.linspace(100, 300, 20))
    assert find_growth(samples(warm_up + [300.0] * 80)) == []


def test_finds_growing_memory() -> None:
    growing = samples(list(np.linspace(300, 360, 100)))
    assert find_growth(growing) == ["megabytes grew from 312 to 348."]


def test_finds_growing_files_and_threads() -> None:
    growing = samples([300.0] * 50) + samples([300.0] * 50, files=60, threads=20)
    assert find_growth(growing) == ["files grew from 20 to 60.", "threads grew from 12 to 20."]


def test_connections_that_come_and_go_are_no_growth() -> None:
    busy = [Sample(i, 300, 20 if i % 7 == 0 else 20 + i, 12) for i in range(100)]
    assert find_growth(busy) == []


def test_fails_with_too_few_samples() -> None:
    assert find_growth(samples([300.0] * 4)) == ["There are too few samples to detect growth."]


def test_counts_statuses_and_reports_errors() -> None:
    status = np.array([200, 200, 429, 503, 0])
    responses = Responses(np.zeros(5), np.full(5, 0.1), status, 1.0, 0.1)
    result = summarise(responses, 20.0)
    assert result == Interval(20.0, 100.0, 100.0, 100.0, Counter({200: 2, 429: 1, 503: 1, 0: 1}))
    assert find_errors([result, result]) == [
        "2 requests got status 0 (0: no response).",
        "2 requests got status 503 (0: no response).",
    ]


def test_recovered_overload_passes() -> None:
    normal, overload = [interval(60, s200=9)], interval(900, 2000, s200=9, s429=9)
    assert find_overload_problems(normal, overload, [interval(50, s200=9)]) == []


def test_reports_every_problem_of_an_overload() -> None:
    normal, overload = [interval(60, s200=9)], interval(900, 30_000, s200=9)
    assert find_overload_problems(normal, overload, [interval(70, s200=9, s429=2)]) == [
        "No request was rejected: the load was too low for an overload.",
        "An accepted request took 30.0 s.",
        "2 requests were rejected after the overload.",
        "p99 was 70 ms after the overload, at most 60 before.",
    ]
