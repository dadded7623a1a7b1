from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lattemix.bulk.dedup import cells
from lattemix.bulk.dedup.cells import (
    DIMENSIONS,
    NO_CELL,
    Bytes,
    Index,
    Space,
    find_matches,
    inverse_norms,
    make_space,
    sample_ids,
)
from lattemix.bulk.dedup.pairs import Floats, Ids

Pair = tuple[int, int]


def unit(vectors: NDArray[Any]) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def clustered(clusters: int, size: int, noise: float = 0.2, width: int = 40) -> Floats:
    """Clusters of `size` unit vectors, in random order."""
    rng = np.random.default_rng(3)
    centres = unit(rng.normal(size=(clusters, width))).repeat(size, axis=0)
    noisy = centres + noise / width**0.5 * rng.normal(size=centres.shape)
    return unit(rng.permutation(noisy))


class Indexed:
    """Vectors in the cells of a space."""

    def __init__(self, vectors: Floats, space: Space | None = None) -> None:
        self.space = space or make_space(vectors[sample_ids(len(vectors))], len(vectors))
        self.projected = self.space.project(vectors)
        self.nearest = self.space.nearest(self.projected)
        self.everything = np.ones(len(vectors), bool)
        self.index = Index(self.nearest, self.everything, self.everything)

    def matches(self, floor: float, index: Index | None = None) -> tuple[list[Pair], set[int]]:
        """Return the pairs of all cells, those of each cell once, and the open texts."""
        pairs: list[Pair] = []
        crowded: set[int] = set()
        for cell in range(len(self.space.centroids)):
            found = find_matches(self.vectors, index or self.index, cell, floor)
            ends = np.sort(np.stack([found.left, found.right]), axis=0).T
            pairs += {(a, b) for a, b in ends.tolist()}
            crowded.update(found.crowded.tolist())
        return pairs, crowded

    def vectors(self, ids: Ids) -> Bytes:
        return self.projected[ids]

    def brute_force(self, floor: float) -> set[Pair]:
        floats = self.projected.astype(np.float64)  # exact, and faster than integers
        scores = floats @ floats.T
        norms = np.sqrt(np.diag(scores))
        left, right = np.nonzero(np.triu(scores / norms / norms[:, None] >= floor, 1))
        return {*zip(left.tolist(), right.tolist(), strict=True)}


@pytest.fixture(scope="module")
def clusters() -> Indexed:
    """Of 6,000 vectors in 77 cells, each has 2 neighbours."""
    return Indexed(clustered(2000, 3))


def test_finds_nearly_all_pairs_above_the_floor(clusters: Indexed) -> None:
    assert len(clusters.space.centroids) == 77
    expected = clusters.brute_force(0.85)
    found, crowded = clusters.matches(0.85)
    assert len(expected) > 5500
    assert {*found} <= expected, "no pair is below the floor"
    assert len({*found}) / len(expected) > 0.995
    assert not crowded


def test_finds_pairs_across_cells(clusters: Indexed) -> None:
    home = clusters.nearest[:, 0]
    across = {(a, b) for a, b in clusters.brute_force(0.85) if home[a] != home[b]}
    assert len(across) > 100
    assert len(across & {*clusters.matches(0.85)[0]}) / len(across) > 0.95


def test_finds_each_pair_in_one_cell(clusters: Indexed) -> None:
    found, _ = clusters.matches(0.85)
    assert len(found) == len({*found})


def test_compares_few_vectors_in_a_single_cell() -> None:
    few = Indexed(clustered(150, 4))
    assert len(few.space.centroids) == 1
    found, crowded = few.matches(0.85)
    assert {*found} == few.brute_force(0.85)
    assert not crowded


def test_crowded_texts_are_reported_and_have_their_best_matches() -> None:
    dense = Indexed(clustered(4, 30))
    limit = cells._OWN_MATCHES
    found, crowded = dense.matches(0.5)
    expected = dense.brute_force(0.5)
    degree = np.bincount(np.ravel([*expected]))
    assert crowded == {*np.nonzero(degree > limit)[0].tolist()}
    assert crowded
    assert {*found} < expected
    scores = dense.projected.astype(float) @ dense.projected.T.astype(float)
    norms = np.sqrt(np.diag(scores))
    scores /= norms * norms[:, None]
    np.fill_diagonal(scores, -1)
    for text in range(len(scores)):
        best = np.argsort(-scores[text])[: min(limit, degree[text])].tolist()
        assert {(min(text, b), max(text, b)) for b in best} <= {*found}


def test_finds_all_pairs_of_texts_below_the_limits() -> None:
    """Only pairs of which one text is open, or in cells that are not visited, may be missing."""
    mixed = Indexed(np.concatenate([clustered(1500, 3), clustered(1, 60, 0.05)]))
    found, crowded = mixed.matches(0.85)
    visits = [{*row} for row in mixed.nearest.tolist()]
    for a, b in mixed.brute_force(0.85) - {*found}:
        seen = visits[a] & {visits_home(mixed, b)} or visits[b] & {visits_home(mixed, a)}
        assert {a, b} & crowded or not seen
    assert crowded <= {*range(4500, 4560)} | {*range(4500)}
    assert len(crowded & {*range(4500, 4560)}) == 60


def visits_home(indexed: Indexed, text: int) -> int:
    return int(indexed.nearest[text, 0])


def test_matches_do_not_depend_on_the_blocks(
    clusters: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = clusters.matches(0.85)
    nearest = clusters.nearest
    monkeypatch.setattr(cells, "_BLOCK_PRODUCTS", 1000)
    assert clusters.matches(0.85) == whole
    np.testing.assert_array_equal(clusters.space.nearest(clusters.projected), nearest)


def test_float32_products_of_bytes_are_exact() -> None:
    rng = np.random.default_rng(0)
    extreme = np.concatenate(
        [np.full((1, DIMENSIONS), 127), rng.integers(120, 128, (30, DIMENSIONS))]
    )
    exact = extreme @ extreme.T
    assert exact.max() < 2**24
    floats = extreme.astype(np.float32)
    np.testing.assert_array_equal(floats @ floats.T, exact)


def test_a_space_is_a_function_of_its_sample() -> None:
    sample = clustered(500, 10)
    first, second = make_space(sample, 5000), make_space(sample.copy(), 5000)
    np.testing.assert_array_equal(first.projection, second.projection)
    np.testing.assert_array_equal(first.centroids, second.centroids)
    assert len(first.centroids) == 70


@pytest.mark.parametrize("count", [200, 300, 500])
def test_projection_keeps_similarities(count: int) -> None:
    vectors = clustered(count // 4, 4, width=400)  # wider than the projection
    space = make_space(vectors, count)
    projected = space.project(vectors)
    assert projected.shape == (count, min(count, DIMENSIONS))
    floats = projected * inverse_norms(projected)[:, None]
    np.testing.assert_allclose(floats @ floats.T, vectors @ vectors.T, atol=0.02)


def test_projected_vectors_use_the_range_of_a_byte() -> None:
    space = make_space(clustered(10, 10), 100)
    projected = space.project(clustered(10, 10))
    np.testing.assert_array_equal(np.abs(projected.astype(int)).max(axis=1), 127)


def test_zero_vectors_have_no_norm_and_stay_zero() -> None:
    space = make_space(clustered(10, 10), 100)
    projected = space.project(np.zeros((2, 40)))
    assert not projected.any()
    assert inverse_norms(projected).tolist() == [0, 0]


def test_zero_vectors_do_not_move_the_centroids() -> None:
    sample = clustered(10, 10)
    sample[::7] = 0
    assert make_space(sample, 100).centroids.any(axis=1).all()


def test_a_space_of_zero_vectors_finds_nothing() -> None:
    nothing = Indexed(np.zeros((5, 40), np.float32))
    nothing.nearest[:] = NO_CELL
    index = Index(nothing.nearest, nothing.everything, nothing.everything)
    assert nothing.matches(0.85, index) == ([], set())
    assert index.sizes().tolist() == []


def test_texts_without_a_cell_are_not_compared() -> None:
    some = Indexed(clustered(40, 3))
    some.nearest[::2] = NO_CELL
    index = Index(some.nearest, some.everything, some.everything)
    found, _ = some.matches(0.85, index)
    assert {*found} == {(a, b) for a, b in some.brute_force(0.85) if a % 2 and b % 2}
    assert index.sizes().tolist() == [60]


@pytest.fixture
def half(clusters: Indexed) -> Callable[[bool], Index]:
    """Index of the texts of even ids, or of all with matches for these only."""
    even = np.arange(len(clusters.nearest)) % 2 == 0

    def half(visiting_only: bool) -> Index:
        return Index(clusters.nearest, clusters.everything if visiting_only else even, even)

    return half


def test_compares_active_texts_only(clusters: Indexed, half: Callable[[bool], Index]) -> None:
    whole, _ = clusters.matches(0.85)
    found, _ = clusters.matches(0.85, half(False))
    assert {*found} == {(a, b) for a, b in whole if a % 2 == b % 2 == 0}


def test_finds_matches_of_visiting_texts_among_all_active_ones(
    clusters: Indexed, half: Callable[[bool], Index]
) -> None:
    whole = {(a, b) for a, b in clusters.matches(0.85)[0] if a % 2 == 0 or b % 2 == 0}
    found, _ = clusters.matches(0.85, half(True))
    assert {*found} <= whole
    assert len({*found}) / len(whole) > 0.99, "a visit in one direction may miss a cell"
    assert len(found) == len({*found})


def test_texts_that_are_not_compared_do_not_crowd_others() -> None:
    """The best matches of each text are in its own half, which it is not compared with."""
    near, far = clustered(1, 40, 0.05), clustered(1, 40, 0.05)[::-1] + np.float32(0.04)
    both = Indexed(unit(np.concatenate([near, far])))
    found = find_matches(
        both.vectors, both.index, 0, 0.5, lambda left, right: (left < 40) ^ (right < 40)
    )
    assert {*found.left.tolist()} == {*range(80)}
    assert ((found.left < 40) ^ (found.right < 40)).all()


def test_an_empty_cell_has_no_matches(clusters: Indexed) -> None:
    home = clusters.nearest[:, 0]
    cell = int(home[0])
    index = Index(clusters.nearest, home != cell, clusters.everything & (home != cell))
    assert len(index.members(cell)) == 0
    found = find_matches(clusters.vectors, index, cell, 0.85)
    assert len(found.left) == len(found.right) == len(found.crowded) == 0


@pytest.mark.parametrize("count", [0, 1, 5, 65_536, 65_537, 1_000_000])
def test_samples_are_distinct_and_spread_over_all_texts(count: int) -> None:
    ids = sample_ids(count)
    assert len(ids) == min(count, 65_536) == len(np.unique(ids))
    if count:
        assert (ids[0], ids[-1]) == (0, count - 1)
