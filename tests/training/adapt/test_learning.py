import numpy as np
import pytest
import torch

from lattemix.build.backbones import Checkpoint, TokenVectors
from lattemix.build.head import Head
from lattemix.labelled.pairs import labelled
from tests.tiny import SENTENCES, token_vectors
from training.adapt.examples import from_pairs
from training.adapt.learning import Change, Learner

PAIRS = labelled(
    "p.csv", [(a, b, int(i % 3 == 0)) for i, a in enumerate(SENTENCES) for b in SENTENCES[:i]], None
)
EVERY = np.arange(len(PAIRS))


@pytest.fixture(scope="module")
def tokens(checkpoint: Checkpoint) -> TokenVectors:
    return token_vectors(checkpoint, from_pairs(PAIRS).sentences)


@pytest.fixture(scope="module")
def learner(head: Head, tokens: TokenVectors) -> Learner:
    return Learner(head, from_pairs(PAIRS), tokens)


def test_no_change_leaves_the_tensors_as_they_are(head: Head, tokens: TokenVectors) -> None:
    changed = Change().apply(head, tokens)
    assert changed.tensors == head.tensors


def test_dim_without_weight_has_no_influence(head: Head, tokens: TokenVectors) -> None:
    weights = np.array([2, 0, 1, 1], np.float32)
    changed = Change(dim_weights=weights).apply(head, tokens)
    centred = np.sqrt(changed.mixtures(tokens)) - changed.tensors["centre"]
    np.testing.assert_allclose(centred[:, 1], 0, atol=1e-6)
    assert np.abs(centred[:, 0]).max() > 0.01


def test_token_factors_multiply_the_weights(head: Head, tokens: TokenVectors) -> None:
    ids = np.unique(tokens.ids)[:3]
    factors = np.array([0.5, 1, 3], np.float32)
    once = Change(tokens=(ids, factors)).apply(head, tokens)
    twice = Change(tokens=(ids, factors)).apply(once, tokens)
    for token, factor in zip(ids, factors, strict=True):
        at = tokens.ids == token
        np.testing.assert_allclose(once.weights(tokens)[at], factor * head.weights(tokens)[at])
        np.testing.assert_allclose(twice.weights(tokens)[at], factor**2 * head.weights(tokens)[at])
    others = ~np.isin(tokens.ids, ids)
    np.testing.assert_array_equal(once.weights(tokens)[others], head.weights(tokens)[others])


def test_stronger_penalty_stays_nearer_to_the_identity(learner: Learner) -> None:
    distances = [
        np.linalg.norm(learner.matrix(EVERY, strength).matrix - np.eye(16))
        for strength in (100.0, 1.0, 0.01)
    ]
    assert distances == sorted(distances)
    assert distances[0] < 0.1 * distances[-1]


def test_few_sentences_give_the_same_matrix_as_all_coordinates(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = np.arange(6)  # of fewer sentences than coordinates
    in_span = learner.matrix(few, 1.0).matrix
    square = torch.eye(16)
    monkeypatch.setattr(torch.linalg, "qr", lambda _: (square, square))
    everywhere = learner.matrix(few, 1.0).matrix
    size = np.linalg.norm(everywhere - np.eye(16))
    assert size > 0.1
    assert np.linalg.norm(in_span - everywhere) < 0.15 * size  # as far as few steps converge


def test_line_search_that_diverges_learns_nothing(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: torch.optim.LBFGS, closure: object) -> None:
        self.param_groups[0]["params"][0].data.fill_(torch.nan)
        raise RuntimeError("value cannot be converted to type float without overflow")

    monkeypatch.setattr(torch.optim.LBFGS, "step", step)
    np.testing.assert_allclose(learner.matrix(EVERY, 1.0).matrix, np.eye(16), atol=1e-6)


def test_other_errors_of_the_optimiser_are_not_hidden(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: torch.optim.LBFGS, closure: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(torch.optim.LBFGS, "step", step)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        learner.dims(EVERY, 1.0)
