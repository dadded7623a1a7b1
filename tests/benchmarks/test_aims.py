"""Aims, what is recorded of them, and what has moved."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import check
from benchmarks.aims import AIMS, Aim, table
from benchmarks.record import compare, record, spreads
from benchmarks.rounds import Series

RATIO = next(aim for aim in AIMS if aim.name == "server int8 ÷ infinity, bulk")
WAIT = next(aim for aim in AIMS if aim.name == "p99 at 80 % ÷ p50 at 10 %")


def results(aim: Aim, *values: float) -> dict[str, Series]:
    """A run in which this ratio came out so."""
    assert aim.bottom is not None
    return {aim.part: {aim.top: list(values), aim.bottom: [1.0] * len(values)}}


def test_names_and_series_are_each_of_one_aim() -> None:
    assert len({aim.name for aim in AIMS}) == len(AIMS)
    assert len({(aim.part, aim.top, aim.bottom) for aim in AIMS}) == len(AIMS)
    assert all(key.count("/") == 2 for aim in AIMS for key in (aim.top, aim.bottom) if key)


def test_ratios_are_taken_round_by_round() -> None:
    series = {RATIO.part: {RATIO.top: [8.0, 30.0], str(RATIO.bottom): [2.0, 10.0]}}
    assert RATIO.values(series) == [4, 3]
    assert RATIO.values({}) == []


@pytest.mark.parametrize(("aim", "value", "answer"), [(RATIO, 3.7, "yes"), (RATIO, 3.6, "no")])
def test_what_was_reached(aim: Aim, value: float, answer: str) -> None:
    (row,) = table(results(aim, value)).rows
    assert row[0] == aim.name
    assert row[-1] == answer


def test_smaller_is_better_where_the_aim_says_so() -> None:
    assert WAIT.reached(6)
    assert not WAIT.reached(6.1)
    assert WAIT.better(3, 4)
    assert RATIO.better(4, 3)


def recorded(tmp_path: Path, found: dict[str, Series]) -> dict[str, Any]:
    path = tmp_path / "recorded.json"
    record(found, {"cpu": "a", "cores": 2}, 2.0, path)
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize(
    ("aim", "then", "now", "moved", "worse"),
    [
        (RATIO, (4, 4.1, 4.2), (3, 3.1, 3.2), True, True),
        (RATIO, (4, 4.1, 4.2), (5, 5.1, 5.2), True, False),
        (RATIO, (4, 4.1, 4.2), (3, 3.1, 4.05), False, False),  # the ranges overlap
        (RATIO, (4, 4.1, 4.2), (3.8, 3.85, 3.9), False, False),  # by less than a tenth
        (WAIT, (4, 4.1, 4.2), (5, 5.1, 5.2), True, True),
        (WAIT, (4, 4.1, 4.2), (3, 3.1, 3.2), True, False),
    ],
)
def test_what_has_moved(
    tmp_path: Path,
    aim: Aim,
    then: tuple[float, ...],
    now: tuple[float, ...],
    moved: bool,
    worse: bool,
) -> None:
    (move,) = compare(recorded(tmp_path, results(aim, *then)), results(aim, *now))
    assert (move.moved, move.worse) == (moved, worse)
    (row,) = check.table([move]).rows
    assert row[-1] == ("" if not moved else "worse" if worse else "better")


def test_only_ratios_are_recorded(tmp_path: Path) -> None:
    alone = next(aim for aim in AIMS if aim.bottom is None)
    assert spreads({alone.part: {alone.top: [1.0]}}) == {}
    assert recorded(tmp_path, results(RATIO, 1, 2, 3)) == {
        "machine": {"cpu": "a", "cores": 2},
        "seconds": 2.0,
        "ratios": {RATIO.name: {"median": 2, "low": 1, "high": 3}},
    }


def test_another_machine_is_named() -> None:
    here = {"cpu": "a", "cores": 2, "python": "3.11"}
    assert check.difference(here, {**here, "python": "3.12"}) == ""
    assert check.difference(here, {**here, "cores": 8}) == "cores 2 there, 8 here"


@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        ((4, 4.1, 4.2), 0, "cpu a there, b here"),
        ((2, 2.1, 2.2), 1, "Worse than recorded: server int8 ÷ infinity"),
        ((), 1, "not measured now: server int8 ÷ infinity"),
    ],
)
def test_the_check_fails_for_what_is_worse_or_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    now: tuple[float, ...],
    code: int,
    said: str,
) -> None:
    recorded(tmp_path, results(RATIO, 4, 4.1, 4.2))
    monkeypatch.setattr(check, "RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr(check.suite, "run", lambda *_: (results(RATIO, *now), []))
    monkeypatch.setattr(check.suite, "machine", lambda: {"cpu": "b", "cores": 2})
    with pytest.raises(SystemExit) as end:
        check.main()
    assert end.value.code == code
    assert said in capsys.readouterr().out
