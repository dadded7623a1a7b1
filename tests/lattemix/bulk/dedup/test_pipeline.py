import math
from pathlib import Path

import numpy as np
import pytest

from lattemix.bulk.dedup.pipeline import Texts, order_texts
from lattemix.bulk.dedup.rows import Rows, read_rows
from lattemix.bulk.readers import TEXTS
from tests.lattemix.bulk.dedup.conftest import write_lines


def rows_of(directory: Path, texts: list[str]) -> Rows:
    read_rows(directory, [write_lines(directory / "x.txt", texts)], TEXTS, id)
    return Rows.load(directory)


def order(
    directory: Path, texts: list[str], keep: str, references: int = 0, numbers: object = None
) -> tuple[list[str], list[int]]:
    """Return texts in the order in which they are kept, and their rows."""
    rows = rows_of(directory, texts)
    values = None if numbers is None else np.array(numbers, np.float64)
    result: Texts = order_texts(rows, references, keep, values)
    assert sorted(result.order.tolist()) == [*range(len(rows.first))]
    assert rows.row_texts(result.representative) == rows.texts(np.arange(len(rows.first)))
    assert result.references == len({*texts[:references]})
    return rows.texts(result.order), result.representative[result.order].tolist()


FIVE = ["bb", "a", "ccc", "a", "dd", "bb"]


@pytest.mark.parametrize(
    ("keep", "expected", "places"),
    [
        ("first", ["bb", "a", "ccc", "dd"], [0, 1, 2, 4]),
        ("longest", ["ccc", "bb", "dd", "a"], [2, 0, 4, 1]),
        ("shortest", ["a", "bb", "dd", "ccc"], [1, 0, 4, 2]),
    ],
)
def test_orders_texts_by_the_rule_and_then_by_row(
    tmp_path: Path, keep: str, expected: list[str], places: list[int]
) -> None:
    assert order(tmp_path, FIVE, keep) == (expected, places)


def test_orders_texts_by_the_largest_number_of_their_rows(tmp_path: Path) -> None:
    numbers = [1, 0, -math.inf, 7, 1, 1]
    assert order(tmp_path, FIVE, "max:n", numbers=numbers) == (
        ["a", "bb", "dd", "ccc"],
        [3, 0, 4, 2],
    )


@pytest.mark.parametrize("keep", ["first", "longest", "shortest", "max:n"])
def test_texts_to_compare_against_come_first_in_order_of_their_rows(
    tmp_path: Path, keep: str
) -> None:
    texts = ["bb", "a", "bb", "ccc", *["bb", "dddd", "", "a", "dddd"]]
    numbers = [math.inf, 1, 1, math.inf, 2] if keep == "max:n" else None
    found, places = order(tmp_path, texts, keep, references=4, numbers=numbers)
    assert (found[:3], places[:3]) == (["bb", "a", "ccc"], [0, 1, 3])
    expected = {"first": [5, 6], "longest": [5, 6], "shortest": [6, 5], "max:n": [8, 6]}
    assert places[3:] == expected[keep]


def test_no_texts_have_no_order(tmp_path: Path) -> None:
    """Of a file with rows to compare against only."""
    assert order(tmp_path, ["a", "b"], "first", references=2) == (["a", "b"], [0, 1])
