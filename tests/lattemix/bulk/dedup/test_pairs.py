import numpy as np

from lattemix.bulk.dedup.pairs import Pairs, join


def pairs(*rows: tuple[int, int, float]) -> Pairs:
    left, right, scores = zip(*rows, strict=True) if rows else ((), (), ())
    return Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(scores, np.float32))


def rows(found: Pairs) -> list[tuple[int, int, float]]:
    return [
        *zip(found.left.tolist(), found.right.tolist(), found.scores.tolist(), strict=True),
    ]


def test_join_returns_distinct_pairs_in_order_of_their_ids() -> None:
    joined = join([pairs((2, 3, 0.5), (0, 9, 0.25)), pairs(), pairs((0, 1, 1), (2, 3, 0.5))])
    assert rows(joined) == [(0, 1, 1), (0, 9, 0.25), (2, 3, 0.5)]


def test_join_keeps_pairs_that_share_one_text() -> None:
    assert rows(join([pairs((0, 1, 1), (0, 2, 1), (1, 2, 1))])) == [(0, 1, 1), (0, 2, 1), (1, 2, 1)]


def test_join_of_nothing_has_no_pairs() -> None:
    for parts in ([], [pairs()]):
        joined = join(parts)
        assert len(joined) == 0
        assert (joined.left.dtype, joined.scores.dtype) == (np.int64, np.float32)


def test_where_returns_the_chosen_pairs() -> None:
    some = pairs((0, 1, 0.5), (0, 2, 0.75), (1, 2, 1))
    assert rows(some.where(some.scores >= 0.75)) == [(0, 2, 0.75), (1, 2, 1)]
