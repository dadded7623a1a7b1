from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattemix.bulk.dedup.cells import Index
from lattemix.bulk.dedup.compare import Round
from lattemix.bulk.dedup.task import Comparison
from tests.lattemix.bulk.dedup.conftest import (
    Calls,
    Run,
    random_texts,
    variant,
    write_lines,
)

COMPARISON = Comparison(references=0, against_only=False, floor=0.85)
ALL = np.ones(9, bool)
NOT_LAST = np.arange(9) < 8


def index_of(sizes: list[int]) -> Index:
    """An index of cells with so many texts."""
    nearest = np.repeat(np.arange(len(sizes)), sizes).astype(np.uint16)[:, None]
    everything = np.ones(len(nearest), bool)
    return Index(nearest, everything, everything)


@pytest.mark.parametrize(
    "sizes", [[], [3], [0, 0, 5], [5000] * 4, [9000, 1, 20_000], [1] * 20_000, [0, 8192, 0, 8192]]
)
def test_ranges_cover_all_texts(tmp_path: Path, sizes: list[int]) -> None:
    ranges = Round(tmp_path, "round").ranges(index_of(sizes))
    cells = [cell for part in ranges for cell in range(part.start, part.stop)]
    assert len(cells) == len({*cells})
    assert {cell for cell, size in enumerate(sizes) if size} <= {*cells}
    assert [part.texts for part in ranges] == [sum(sizes[p.start : p.stop]) for p in ranges]
    assert sum(part.texts for part in ranges) == sum(sizes)
    assert [part.number for part in ranges] == [*range(len(ranges))]
    limit = 8192 + max(sizes, default=0)
    assert all(part.texts <= limit for part in ranges)


def test_a_round_is_named_by_what_it_compares(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{"floor": 0.8}, {"references": 3}, {"against_only": True}]
    others = [COMPARISON.model_copy(update=change) for change in changes]
    names = {Round.make(tmp_path, comparison, ALL, ALL).name for comparison in others}
    names |= {Round.make(tmp_path, COMPARISON, *masks).name for masks in [(ALL, ALL)] * 2}
    names |= {Round.make(tmp_path, COMPARISON, ALL, NOT_LAST).name}
    names |= {Round.make(tmp_path, COMPARISON, NOT_LAST, NOT_LAST).name}
    assert len(names) == 6


def test_pairs_are_the_same_whatever_the_parts(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    texts = random_texts(120)
    texts += [variant(text) for text in texts]
    source = write_lines(tmp_path / "x.txt", texts)
    monkeypatch.setattr("lattemix.bulk.dedup.cells._SINGLE_CELL", 8)
    whole = run(source, tmp_path / "whole")
    ranges = len(calls.compare)
    monkeypatch.setattr("lattemix.bulk.dedup.compare._TEXTS", 16)
    monkeypatch.setattr("lattemix.bulk.dedup.compare._PAIRS", 5)
    monkeypatch.setattr("lattemix.bulk.dedup.vectors._PAIRS", 2)
    assert run(source, tmp_path / "parts") == whole
    assert len(calls.compare) - ranges > 5 > ranges
    for name in ("kept.txt", "dropped.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_pairs_of_rows_to_compare_against_are_not_candidates(tmp_path: Path, run: Run) -> None:
    first, second = random_texts(2, seed=5)
    old = write_lines(tmp_path / "old.txt", [first, variant(first), second, variant(second)])
    source = write_lines(tmp_path / "x.txt", [variant(first, 2), variant(first, 3)])
    assert run(source, tmp_path / "out", against=old).candidates == 5
    assert run(source, tmp_path / "only", against=old, against_only=True).candidates == 4


def test_empty_cells_of_a_later_round_are_compared(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    """Most texts of the first round are dropped, and with them all texts of some cells."""
    monkeypatch.setattr("lattemix.bulk.dedup.cells._SINGLE_CELL", 8)
    texts = [variant(text, n) for text in random_texts(30) for n in range(40)]
    run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out", threshold=0.99)
    assert len({name for name, _ in calls.compare}) > 1
    assert (tmp_path / "out/kept.txt").read_text().splitlines() == texts[::40]
