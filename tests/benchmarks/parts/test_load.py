"""Goodput and rejections under random arrivals."""

import numpy as np
import pytest

from benchmarks.load_generator import Responses
from benchmarks.parts.load import summarise


def responses(due: list[float], seconds: list[float], status: list[int]) -> Responses:
    ends = np.array(due) + np.array(seconds)
    return Responses(np.array(due), np.array(seconds), np.array(status), float(ends.max()), 0.01)


def test_goodput_counts_from_the_first_429_on() -> None:
    # One request per second for 10 s; rejected from 4 s on, except those due at 6 and 8.
    due = [float(second) for second in range(10)]
    status = [200, 200, 200, 200, 429, 429, 200, 429, 200, 429]
    figures = summarise(responses(due, [0.5] * 10, status), 10.0)
    assert figures["goodput"] == pytest.approx(2 / 5.5)  # from 4.5 s on
    assert figures["rejected %"] == pytest.approx(100 * 3 / 5)
    assert figures["errors"] == 0


def test_late_responses_are_no_goodput() -> None:
    figures = summarise(responses([0.0, 1.0], [0.5, 5.0], [200, 200]), 2.0)
    assert figures["goodput"] == pytest.approx(0.5)
    assert figures["rejected %"] == 0


def test_other_statuses_are_errors() -> None:
    figures = summarise(responses([0.0, 1.0, 1.5], [0.1] * 3, [200, 500, 0]), 2.0)
    assert figures["errors"] == 2
