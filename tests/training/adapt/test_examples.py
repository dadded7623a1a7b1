import numpy as np
import pytest

from lattemix.labelled.pairs import LabelError, labelled
from lattemix.labelled.triplets import triplets
from training.adapt.examples import (
    Examples,
    folds,
    from_pairs,
    from_triplets,
    quality,
    sample,
    without,
)

PAIRS = labelled("p.csv", [(f"a{i}", f"b{i}", i % 2) for i in range(40)], None)
# Every sentence is in two pairs, and all pairs are linked.
RING = labelled("r.csv", [(f"s{i}", f"s{(i + 1) % 40}", i % 2) for i in range(40)], None)


@pytest.mark.parametrize("pairs", [PAIRS, RING])
def test_folds_share_no_sentence(pairs) -> None:
    examples = from_pairs(pairs)
    held_out = []
    for train, validation in folds(examples, 5, seed=0):
        assert not set(examples.rows[train].ravel()) & set(examples.rows[validation].ravel())
        held_out += [*validation]
    assert sorted(held_out) == list(range(40))


def test_separate_pairs_all_train_outside_their_fold() -> None:
    for train, validation in folds(from_pairs(PAIRS), 5, seed=0):
        assert len(train) + len(validation) == 40


def test_folds_depend_on_the_seed_only() -> None:
    examples = from_pairs(PAIRS)
    first, again, other = ([v.tolist() for _, v in folds(examples, 5, seed)] for seed in (0, 0, 1))
    assert first == again != other


def test_triplets_compare_the_anchor_with_both_others() -> None:
    examples = from_triplets(triplets("t.csv", [("x", "y", "z"), ("p", "q", "r")]))
    left, right = ([examples.sentences[i] for i in side] for side in examples.pairs)
    assert list(zip(left, right, strict=True)) == [("x", "y"), ("p", "q"), ("x", "z"), ("p", "r")]
    margins = examples.margins(np.array([0.9, 0.2, 0.5, 0.4]))
    np.testing.assert_allclose(margins, [0.4, -0.2])
    assert quality(examples.quality_name, margins, examples.targets) == 50


def test_figure_depends_on_the_kind_of_labels() -> None:
    rated = labelled("r.csv", [("a", "b", 1), ("c", "d", 4), ("e", "f", 5)], (0, 5))
    assert from_pairs(rated).quality_name == "Spearman"
    assert from_pairs(PAIRS).quality_name == "AUC"


def test_auc_counts_ties_as_half() -> None:
    targets = np.array([1.0, 0, 1, 0])
    assert quality("AUC", np.array([4.0, 1, 3, 2]), targets) == 100
    assert quality("AUC", np.zeros(4), targets) == 50
    assert np.isnan(quality("AUC", np.zeros(2), np.ones(2)))


def test_taken_examples_keep_their_sentences() -> None:
    taken = from_pairs(PAIRS).take(np.array([3, 7]))
    assert [[taken.sentences[i] for i in row] for row in taken.rows] == [["a3", "b3"], ["a7", "b7"]]
    assert len(taken.sentences) == 4


def test_sample_is_of_the_requested_size() -> None:
    examples: Examples = from_pairs(PAIRS)
    assert len(sample(examples, 10, seed=0)) == 10
    assert sample(examples, 100, seed=0) is examples


def test_sets_to_report_on_lose_pairs_that_share_a_sentence() -> None:
    sets, notes = without([PAIRS], {"a0", "b1"})
    assert len(sets["p.csv"]) == 38
    assert notes == ["p.csv: 2 pairs share a sentence with the labels."]
    with pytest.raises(LabelError, match="has 0 pairs that share no sentence"):
        without([PAIRS], {*PAIRS.a})
