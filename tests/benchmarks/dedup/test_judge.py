import pytest

from benchmarks.dedup.judge import Dropped, Judge, differ_in_fact, jaccard
from benchmarks.dedup.plant import Planted

TEXTS = [
    "The harbour was built in 1890 by the town.",
    "THE HARBOUR WAS BUILT IN 1890 BY THE TOWN.",  # planted copy of the first
    "The harbour was built in 1950 by the town.",
    "The harbour was once built in 1890 by the town.",
    "A violin has four strings.",
]
JUDGE = Judge(TEXTS, [Planted(copy=1, source=0, kind="case")])


@pytest.mark.parametrize(
    ("dropped", "counts"),
    [
        (Dropped(1, 0), (1, 0, 0, 0)),
        (Dropped(4, 0), (0, 1, 0, 0)),
        (Dropped(3, 0), (0, 0, 1, 0)),
        (Dropped(2, 1), (0, 0, 1, 1)),  # by the words of the source
    ],
)
def test_verdicts(dropped: Dropped, counts: tuple[int, ...]) -> None:
    quality = JUDGE([dropped])
    assert (quality.right, quality.wrong, quality.undecided, quality.distinct) == counts


def test_a_planted_pair_is_found_if_both_rows_have_one_keeper() -> None:
    assert JUDGE([]).recall == 0
    assert JUDGE([Dropped(1, 0)]).recall == 1
    assert JUDGE([Dropped(0, 3), Dropped(1, 3)]).found == {"case": 1}
    assert JUDGE([Dropped(0, 3), Dropped(1, 2)]).recall == 0


def test_undecided_rows_count_only_for_strict_precision() -> None:
    quality = JUDGE([Dropped(1, 0), Dropped(2, 0)])
    assert quality.precision == 1
    assert quality.strict_precision == 0.5


def test_jaccard_ignores_case_and_punctuation() -> None:
    assert jaccard("One, two!", "two ONE three") == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ("In June it rained.", "In July it rained.", True),
        ("He did it.", "He did not do it.", True),
        ("It took 3 years.", "It took 4 years.", True),
        ("The cat sat.", "A cat sat.", False),
    ],
)
def test_differ_in_fact(a: str, b: str, differ: bool) -> None:
    assert differ_in_fact(a, b) is differ
