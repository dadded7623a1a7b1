"""Mixed requests and arrival times."""

import json

import numpy as np
import pytest

from benchmarks import texts, traffic

WORDS = [f"word{number}" for number in range(100_000)]


@pytest.fixture(autouse=True)
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words without a model."""
    monkeypatch.setattr(texts, "vocabulary", lambda: WORDS)


def test_mixed_requests_are_distinct_and_of_every_kind() -> None:
    requests = list(traffic.mixed_requests("test", 600))
    assert len(set(requests)) == 600
    paths = {request.split()[1] for request in requests}
    assert paths == {b"/embed", b"/similarity", b"/explain", b"/rank", b"/matrix"}
    sizes = [len(json.loads(r.partition(b"\r\n\r\n")[2]).get("inputs", [])) for r in requests]
    assert {1, 32, 64} <= set(sizes)


def test_shares_of_the_mix_sum_to_1() -> None:
    assert sum(share for _, share, _ in traffic.MIX) == pytest.approx(1)


def test_arrivals_are_a_poisson_process() -> None:
    due = traffic.poisson_arrivals("a", 200, 10)
    assert len(due) == pytest.approx(2000, rel=0.1)
    assert due[-1] < 10
    gaps = np.diff(due)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.15)
