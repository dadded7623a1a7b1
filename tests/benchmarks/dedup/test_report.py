from collections import Counter

import pytest

from benchmarks.dedup.judge import Quality
from benchmarks.dedup.processes import Usage
from benchmarks.dedup.report import Curve, tables


def quality(right: int, wrong: int, found: int) -> Quality:
    return Quality(right, wrong, planted=Counter(case=100), found=Counter(case=found))


CURVE = Curve({0.8: quality(90, 10, 90), 0.9: quality(100, 0, 60)}, default=0.9)


def test_recall_at_precision_is_interpolated() -> None:
    assert CURVE.at_precision() == pytest.approx((0.85, 0.75))


def test_recall_at_precision_of_one_kind() -> None:
    assert CURVE.at_precision("case") == CURVE.at_precision()


def test_a_curve_that_never_reaches_the_precision() -> None:
    assert Curve({0.9: quality(1, 1, 1)}, default=0.9).at_precision() is None


def test_tables_of_all_systems() -> None:
    usages = {"fast": [Usage(2, 3, 100), Usage(4, 5, 200)]}
    text = "\n".join(map(str, tables(usages, {"fast": CURVE, "none": Curve({}, 0.9)})))
    assert "| fast   | 3       | 2-4   | 4           | 200     |" in text
    assert "never" in text
