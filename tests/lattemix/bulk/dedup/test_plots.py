"""The plot of a run: its numbers, and that its texts do not overlap."""

from itertools import combinations, pairwise

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from lattemix.bulk.dedup.plots import by_size, plot
from lattemix.bulk.dedup.summary import Summary
from lattemix.bulk.dedup.task import Scorer

SCORER = Scorer(model="fast:int8", fingerprint="0123456789ab", metric="centred")
LONG = Scorer(
    model="customer-support-questions-2026:int8", fingerprint="0123456789ab", metric="bhattacharyya"
)
SUMMARY = Summary(
    candidates_by=SCORER,
    rescored_by=None,
    threshold=0.95,
    floor=0.9,
    keep="first",
    linkage="keeper",
    rows=100,
    kept=80,
    identical=10,
    similar=10,
    not_compared=0,
    first_not_compared="",
    truncated=0,
    candidates=30,
    not_rescored=0,
    first_not_rescored="",
    group_sizes={2: 3, 3: 1},
    scores={"0.90": 20, "0.95": 7, "0.99": 3},
    least_similar_duplicates=[],
    most_similar_others=[],
)
SKEWED = {2: 1_400, 3: 470, 4: 250, 5: 190, 7: 300, 15: 150, 80: 160, 4_000: 50}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({}, {"2": 0}),
        ({2: 4}, {"2": 4}),
        ({2: 4, 5: 1}, {"2": 4, "3": 0, "4-5": 1}),
        (
            SKEWED,
            {"2": 1_400, "3": 470, "4-5": 440, "6-10": 300, "11-20": 150, "21-100": 160}
            | {">100": 50},
        ),
    ],
)
def test_counts_groups_by_ranges_of_sizes(groups, expected) -> None:
    assert by_size(groups) == expected
    assert sum(by_size(groups).values()) == sum(groups.values())


def assert_readable(axis: Axes) -> None:
    """Check that texts are within the figure, and that tick labels do not overlap."""
    frame = axis.figure.bbox
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels if label.get_text()]
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    for text in (axis.title, axis.xaxis.label, axis.yaxis.label):
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"group_sizes": {}, "scores": {}},
        {"group_sizes": SKEWED, "scores": {f"0.{i}": 10**7 // (i - 84) for i in range(85, 100)}},
        {"candidates_by": LONG, "rescored_by": LONG, "group_sizes": {2: 3, 70: 1}},
    ],
    ids=["small", "empty", "large", "two models"],
)
def test_texts_are_within_the_plot_and_do_not_overlap(changes) -> None:
    figure = plot(SUMMARY.model_copy(update=changes))
    FigureCanvasAgg(figure).draw()
    for axis in figure.axes:
        assert_readable(axis)
    labels = [axis.xaxis.label.get_window_extent() for axis in figure.axes]
    assert not any(left.overlaps(right) for left, right in pairwise(labels))


def test_names_what_was_compared_with_the_threshold() -> None:
    scores, sizes = plot(SUMMARY).axes
    assert scores.get_xlabel() == "score: centred of fast:int8"
    assert [text.get_text() for text in scores.get_legend().get_texts()] == ["threshold 0.95"]
    assert [bar.get_height() for bar in scores.patches] == [20, 7, 3]
    assert [text.get_text() for text in sizes.texts] == ["3", "1"]
    scores, _ = plot(SUMMARY.model_copy(update={"rescored_by": LONG})).axes
    assert scores.get_xlabel() == f"mean of centred of fast:int8\nand bhattacharyya of {LONG.model}"
