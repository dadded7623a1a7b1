"""How a soak is judged."""

import json

import numpy as np
import pytest

from benchmarks import texts
from benchmarks.load import Answers
from benchmarks.soak import KINDS, Overload, Part, grown, part_of, requests, wrong
from benchmarks.watch import Sample


def samples(megabytes: list[float], files: int = 20, threads: int = 12) -> list[Sample]:
    return [Sample(second, size, files, threads) for second, size in enumerate(megabytes)]


def test_what_stays_did_not_grow() -> None:
    warming = list(np.linspace(100, 300, 20))
    assert grown(samples(warming + [300.0] * 80)) == []


def test_memory_that_grows_is_found() -> None:
    assert grown(samples(list(np.linspace(300, 360, 100)))) == ["megabytes grew from 312 to 348."]


def test_files_and_threads_that_grow_are_found() -> None:
    flat = samples([300.0] * 50) + samples([300.0] * 50, files=60, threads=20)
    assert grown(flat) == ["files grew from 20 to 60.", "threads grew from 12 to 20."]


def test_files_that_come_and_go_are_not() -> None:
    busy = [Sample(i, 300, 20 if i % 7 == 0 else 20 + i, 12) for i in range(100)]
    assert grown(busy) == []


def test_a_moment_says_nothing() -> None:
    assert grown(samples([300.0] * 4)) == ["It was not watched for long enough to say."]


def test_requests_are_of_every_kind_and_new_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word{number}" for number in range(100_000)]
    monkeypatch.setattr(texts, "vocabulary", lambda: words)  # without a model to take them from
    sent = list(requests("test", 600))
    assert len(set(sent)) == 600
    paths = {request.split()[1] for request in sent}
    assert paths == {b"/embed", b"/similarity", b"/explain", b"/rank", b"/matrix"}
    sizes = [len(json.loads(r.partition(b"\r\n\r\n")[2]).get("inputs", [])) for r in sent]
    assert {1, 32, 64} <= set(sizes)
    assert sum(share for _, share, _ in KINDS) == pytest.approx(1)


def test_answers_are_counted_and_wrong_ones_told() -> None:
    status = np.array([200, 200, 429, 503, 0])
    answers = Answers(np.zeros(5), np.full(5, 0.1), status, 1.0, 0.1)
    part = part_of(answers, 20.0)
    assert part == Part(20.0, 100.0, 100.0, {200: 2, 0: 1, 429: 1, 503: 1})
    assert sorted(wrong([part, part])) == [
        "2 answers were 0 (0: connection lost).",
        "2 answers were 503 (0: connection lost).",
    ]


def test_an_overload_is_judged() -> None:
    flat, rising = samples([300.0] * 100), samples(list(np.linspace(300, 400, 100)))
    much, later = Part(120, 1, 1, {200: 9, 429: 9}), Part(15, 1, 50, {200: 9})
    assert Overload(much, 4.0, flat, 300, 305, later).problems(usual=60) == []
    little, slow = Part(120, 1, 1, {200: 9}), Part(15, 1, 70, {200: 9, 429: 2})
    bad = Overload(little, 30.0, rising, 300, 400, slow).problems(usual=60)
    firsts = ["Nothing", "An", "Meanwhile", "Later", "From", "It"]
    assert [problem.split()[0] for problem in bad] == firsts
