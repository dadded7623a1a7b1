"""Rounds, medians and ratios."""

import pytest

from benchmarks.rounds import Spread, ratios, run_rounds


def test_order_rotates_and_series_are_in_order_of_rounds() -> None:
    calls: list[str] = []

    def measure(name: str, number: int) -> dict[str, float]:
        calls.append(f"{name}{number}")
        return {"rate": float(number), "ms": 1.0}

    series = run_rounds({"a": lambda n: measure("a", n), "b": lambda n: measure("b", n)}, 2)
    assert calls == ["a0", "b0", "b1", "a1"]
    assert series == {"a/rate": [0, 1], "a/ms": [1, 1], "b/rate": [0, 1], "b/ms": [1, 1]}


def test_ratios_are_taken_within_a_round() -> None:
    assert ratios([10, 40], [5, 10]) == [2, 4]
    with pytest.raises(ValueError, match="shorter"):
        ratios([10, 40], [5])


def test_spread_is_formatted_with_its_range() -> None:
    assert f"{Spread.of([3, 1, 2]):.1f}" == "2.0 (1.0 to 3.0)"
    assert f"{Spread.of([3]):.0f}" == "3"
