from collections.abc import Callable
from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lattemix.bulk.dedup.groups import Groups, Linkage, group, resolve
from lattemix.bulk.dedup.pairs import Floats, Ids, Mask, Pairs, join
from tests.lattemix.bulk.dedup.test_pairs import pairs

A, B, C, D = range(4)
LINKAGES: tuple[Linkage, ...] = ("keeper", "complete")


def in_order(*texts: int) -> Ids:
    return np.array(texts, np.int64)


def keepers(groups: Groups) -> list[int]:
    keeper: list[int] = groups.keeper.tolist()
    return keeper


@pytest.mark.parametrize("linkage", LINKAGES)
def test_texts_without_pairs_are_kept(linkage: Linkage) -> None:
    groups = group(pairs(), in_order(1, 0, 2), linkage)
    assert keepers(groups) == [0, 1, 2]
    assert groups.kept.all()
    assert np.isnan(groups.scores).all()


@pytest.mark.parametrize("linkage", LINKAGES)
def test_groups_do_not_chain(linkage: Linkage) -> None:
    groups = group(pairs((A, B, 0.95), (B, C, 0.95)), in_order(A, B, C), linkage)
    assert keepers(groups) == [A, A, C], "C is similar to the dropped B only"


@pytest.mark.parametrize("linkage", LINKAGES)
def test_keeps_the_first_in_order(linkage: Linkage) -> None:
    groups = group(pairs((A, B, 0.95)), in_order(B, A), linkage)
    assert keepers(groups) == [B, B]
    assert groups.kept.tolist() == [False, True]
    assert groups.scores[A] == np.float32(0.95)


def test_a_text_in_the_middle_of_the_order_leaves_both_its_ends_kept_or_drops_both() -> None:
    chain = pairs((A, B, 0.95), (B, C, 0.95))
    assert keepers(group(chain, in_order(B, A, C), "keeper")) == [B, B, B]
    assert keepers(group(chain, in_order(B, A, C), "complete")) == [B, B, C]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_drops_for_the_most_similar_of_several_kept_texts(linkage: Linkage) -> None:
    groups = group(pairs((A, C, 0.91), (B, C, 0.97)), in_order(A, B, C), linkage)
    assert keepers(groups) == [A, B, B]
    assert groups.scores[C] == np.float32(0.97)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_drops_for_the_first_of_equally_similar_kept_texts(linkage: Linkage) -> None:
    groups = group(pairs((A, C, 0.95), (B, C, 0.95)), in_order(B, A, C), linkage)
    assert keepers(groups)[C] == B


def test_complete_linkage_tries_the_next_most_similar_group() -> None:
    # D is most similar to B, but not similar to C, which duplicates B.
    close = pairs((A, D, 0.91), (B, C, 0.95), (B, D, 0.97))
    assert keepers(group(close, in_order(A, B, C, D), "complete")) == [A, B, B, A]


def test_complete_linkage_drops_a_text_that_is_similar_to_the_whole_group() -> None:
    close = pairs((A, B, 0.95), (A, C, 0.95), (B, C, 0.91))
    assert keepers(group(close, in_order(A, B, C), "complete")) == [A, A, A]


COUNT = 9


@st.composite
def close_pairs(draw: st.DrawFn) -> Pairs:
    some = draw(st.lists(st.sampled_from([*combinations(range(COUNT), 2)]), unique=True))
    values = draw(st.lists(st.sampled_from([0.9, 0.95, 1]), min_size=36, max_size=36))
    return join([pairs(*((a, b, s) for (a, b), s in zip(some, values, strict=False)))])


orders = st.permutations(range(COUNT)).map(lambda order: in_order(*order))


def score_of(close: Pairs) -> dict[tuple[int, int], float]:
    columns = (close.left.tolist(), close.right.tolist(), close.scores.tolist())
    return {key: score for a, b, score in zip(*columns, strict=True) for key in ((a, b), (b, a))}


@given(close_pairs(), orders)
def test_keeper_linkage_drops_only_duplicates_of_kept_texts(close: Pairs, order: Ids) -> None:
    groups, scores = group(close, order, "keeper"), score_of(close)
    rank = {text: place for place, text in enumerate(order.tolist())}
    for text, keeper in enumerate(keepers(groups)):
        assert groups.kept[keeper]
        if text != keeper:
            assert groups.scores[text] == scores[text, keeper]
            assert rank[keeper] < rank[text]
            candidates = [k for k in range(COUNT) if groups.kept[k] and rank[k] < rank[text]]
            best = max(scores.get((text, other), 0) for other in candidates)
            assert scores[text, keeper] == best
    assert not any(groups.kept[a] and groups.kept[b] for a, b in scores)


@given(close_pairs(), orders)
def test_complete_linkage_makes_groups_of_mutual_duplicates(close: Pairs, order: Ids) -> None:
    groups, scores = group(close, order, "complete"), score_of(close)
    rank = {text: place for place, text in enumerate(order.tolist())}
    members: dict[int, list[int]] = {}
    for text, keeper in enumerate(keepers(groups)):
        members.setdefault(keeper, []).append(text)
    for keeper, texts in members.items():
        assert groups.kept[keeper]
        assert min(texts, key=rank.__getitem__) == keeper
        assert all(pair in scores for pair in combinations(texts, 2))
    for text in order.tolist():  # kept only if it fits no group of the texts before it
        if groups.kept[text]:
            for keeper, texts in members.items():
                earlier = [other for other in texts if rank[other] < rank[text]]
                fits = keeper in earlier and all((text, other) in scores for other in earlier)
                assert not fits


@given(close_pairs(), orders, st.sampled_from(LINKAGES))
def test_groups_do_not_depend_on_the_order_of_pairs(
    close: Pairs, order: Ids, linkage: Linkage
) -> None:
    backwards = Pairs(close.left[::-1], close.right[::-1], close.scores[::-1])
    again, once = group(backwards, order, linkage), group(close, order, linkage)
    assert keepers(again) == keepers(once)
    np.testing.assert_array_equal(again.scores, once.scores)


def limited(
    scores: Floats, floor: float, limit: int, calls: list[int]
) -> Callable[[Mask, Mask], tuple[Pairs, Mask]]:
    """Compare by a table of scores [N, N]; find at most `limit` pairs of a text."""

    def compare(active: Mask, visiting: Mask) -> tuple[Pairs, Mask]:
        calls.append(int(visiting.sum()))
        found: list[tuple[int, int, float]] = []
        crowded = np.zeros(len(scores), bool)
        assert not (visiting & ~active).any()
        for text in np.nonzero(visiting)[0].tolist():
            row = np.where(active, scores[text], -1)
            row[text] = -1
            best = np.argsort(-row, kind="stable")[:limit].tolist()
            crowded[text] = (row >= floor).sum() > limit
            found += [(min(text, j), max(text, j), row[j]) for j in best if row[j] >= floor]
        return join([pairs(*found)]), crowded

    return compare


def resolved(
    scores: Floats, order: Ids, limit: int, linkage: Linkage = "keeper"
) -> tuple[Pairs, Groups, list[int]]:
    calls: list[int] = []
    compare = limited(scores, 0.85, limit, calls)
    everything = np.ones(len(scores), bool)
    found, crowded = compare(everything, everything)
    return *resolve(found, crowded, 0.9, order, linkage, compare), calls


def test_compares_crowded_texts_again_until_one_is_kept() -> None:
    rng = np.random.default_rng(0)
    scores = np.triu(rng.uniform(0.95, 1, (100, 100)), 1).astype(np.float32)
    scores += scores.T
    found, groups, calls = resolved(scores, in_order(*range(100)), limit=16)
    assert keepers(groups) == [0] * 100
    assert calls[0] == 100
    assert 1 < len(calls) < 20
    assert max(calls[1:]) < 20, "only kept texts are compared again"
    assert len(found) == len({*zip(found.left.tolist(), found.right.tolist(), strict=True)})


def test_does_not_compare_again_without_crowded_texts() -> None:
    scores = np.full((10, 10), 0.95, np.float32)
    _, groups, calls = resolved(scores, in_order(*range(10)), limit=9)
    assert keepers(groups) == [0] * 10
    assert calls == [10]


def test_crowded_texts_without_dropped_matches_are_not_compared_again() -> None:
    scores = np.full((50, 50), 0.87, np.float32)  # above the floor, below the threshold
    found, groups, calls = resolved(scores, in_order(*range(50)), limit=3)
    assert groups.kept.all()
    assert calls == [50], "they would have the same matches"
    assert len(found) > 0


def test_compares_again_with_texts_that_a_round_left_out() -> None:
    """The round in which 3 has no further matches does not compare it with 5, dropped for 1."""
    close = {(0, 1): 0.92, (0, 2): 0.92, (0, 4): 0.97, (1, 2): 0.97, (1, 5): 0.92}
    close |= {(2, 3): 0.97, (3, 4): 0.92, (3, 5): 0.92}
    scores = np.zeros((6, 6), np.float32)
    for (a, b), score in close.items():
        scores[a, b] = scores[b, a] = score
    _, groups, _ = resolved(scores, in_order(*range(6)), limit=1)
    assert keepers(groups) == [0, 0, 0, 3, 0, 3]


@st.composite
def score_tables(draw: st.DrawFn) -> Floats:
    count = draw(st.integers(1, 14))
    values = st.sampled_from([0, 0.86, 0.92, 0.97])
    flat = draw(st.lists(values, min_size=count * count, max_size=count * count))
    upper = np.triu(np.array(flat, np.float32).reshape(count, count), 1)
    return np.asarray(upper + upper.T, np.float32)


@given(score_tables(), st.integers(1, 4))
def test_no_two_kept_texts_are_duplicates_whatever_the_limit(scores: Floats, limit: int) -> None:
    _, groups, _ = resolved(scores, in_order(*range(len(scores))), limit)
    kept = np.nonzero(groups.kept)[0]
    assert (scores[np.ix_(kept, kept)] < 0.9).all()
    (dropped,) = np.nonzero(~groups.kept)
    assert (scores[dropped, groups.keeper[dropped]] >= 0.9).all()
    np.testing.assert_array_equal(groups.scores[dropped], scores[dropped, groups.keeper[dropped]])


@given(score_tables(), st.integers(1, 4))
def test_complete_linkage_ends_and_groups_mutual_duplicates(scores: Floats, limit: int) -> None:
    _, groups, _ = resolved(scores, in_order(*range(len(scores))), limit, "complete")
    for keeper in np.nonzero(groups.kept)[0]:
        (texts,) = np.nonzero(groups.keeper == keeper)
        assert all(scores[a, b] >= 0.9 for a, b in combinations(texts, 2))
