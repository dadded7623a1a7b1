from pathlib import Path

import pytest

from lattemix.labelled.pairs import MIN_PAIRS, LabelError
from lattemix.labelled.triplets import Triplets, read_triplets, triplets

ROWS = [(f"anchor {i}", f"positive {i}", f"negative {i}") for i in range(MIN_PAIRS)]


def test_reads_columns_by_name_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text("negative,anchor,id,positive\nfar,here,1,near\n")
    read = read_triplets(path)
    assert (read.anchors, read.positives, read.negatives) == (["here"], ["near"], ["far"])


def test_names_the_columns_it_expects(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text("a,b,c\nhere,near,far\n")
    with pytest.raises(Exception, match="anchor, positive, negative"):
        read_triplets(path)


@pytest.mark.parametrize("column", range(3))
def test_rejects_an_empty_sentence(column: int) -> None:
    row = ["here", "near", "far"]
    row[column] = "  "
    with pytest.raises(LabelError, match=r"row 2: the (anchor|positive|negative) is empty"):
        triplets("t.csv", [ROWS[0], row])


def test_rejects_a_file_without_rows() -> None:
    with pytest.raises(LabelError, match="no triplets"):
        triplets("t.csv", [])


def test_accepts_enough_consistent_triplets() -> None:
    assert len(triplets("t.csv", ROWS).check()) == MIN_PAIRS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:5], "has 5 triplets"),
        ([*ROWS, ("here", "near", "near")], "row 21: positive and negative"),
        ([*ROWS, (ROWS[0][0], ROWS[0][2], ROWS[0][1])], "rows 1 and 21 contradict"),
    ],
)
def test_rejects_triplets_that_teach_nothing(rows: list[tuple[str, ...]], message: str) -> None:
    made: Triplets = triplets("t.csv", rows)
    with pytest.raises(LabelError, match=message):
        made.check()
