import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lattemix.ranking import order, pairs_above

SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0]), max_size=30)


@given(SCORES)
def test_order_is_descending_and_keeps_ties_in_place(scores: list[float]) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert order(np.array(scores)).tolist() == expected


def test_pairs_above_lists_every_pair_once_best_first() -> None:
    table = np.array([[1, 0.2, 0.9], [0.2, 1, 0.5], [0.9, 0.5, 1]])
    pairs, scores = pairs_above(table)
    assert pairs.tolist() == [[0, 2], [1, 2], [0, 1]]
    assert scores.tolist() == [0.9, 0.5, 0.2]


def test_pairs_above_includes_the_threshold_itself() -> None:
    table = np.array([[1, 0.2, 0.9], [0.2, 1, 0.5], [0.9, 0.5, 1]])
    pairs, _ = pairs_above(table, threshold=0.5)
    assert pairs.tolist() == [[0, 2], [1, 2]]


def test_one_sentence_has_no_pairs() -> None:
    pairs, scores = pairs_above(np.ones((1, 1)))
    assert (pairs.shape, scores.shape) == ((0, 2), (0,))
