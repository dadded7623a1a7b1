"""Turns, medians and ratios."""

import pytest

from benchmarks.rounds import Spread, order, play, ratios


def test_everyone_takes_a_turn_and_nobody_is_always_first() -> None:
    rounds = [order(["a", "b", "c"], number) for number in range(3)]
    assert [sorted(names) for names in rounds] == [["a", "b", "c"]] * 3
    assert {names[0] for names in rounds} == {"a", "b", "c"}


def test_figures_are_kept_by_round_whatever_the_order() -> None:
    taken: list[str] = []

    def turn(name: str, number: int) -> dict[str, float]:
        taken.append(f"{name}{number}")
        return {"rate": float(number), "ms": 1.0}

    series = play({"a": lambda n: turn("a", n), "b": lambda n: turn("b", n)}, 2)
    assert taken == ["a0", "b0", "b1", "a1"]
    assert series == {"a/rate": [0, 1], "a/ms": [1, 1], "b/rate": [0, 1], "b/ms": [1, 1]}


def test_ratios_are_taken_within_a_round() -> None:
    assert ratios([10, 40], [5, 10]) == [2, 4]
    with pytest.raises(ValueError, match="shorter"):
        ratios([10, 40], [5])


def test_a_spread_is_written_with_its_ends() -> None:
    assert f"{Spread.of([3, 1, 2]):.1f}" == "2.0 (1.0 to 3.0)"
    assert f"{Spread.of([3]):.0f}" == "3"
