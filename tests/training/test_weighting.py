"""Token weights, and heads on static word vectors."""

from pathlib import Path

import numpy as np
import pytest

from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors, words
from lattemix.encoder import Encoder
from model_store import LatteMixError, Store
from training.backbones import Backbone, load
from training.cache import VectorCache
from training.corpus import prepare
from training.encoding import EncodedCorpus
from training.heads import make_head
from training.recipe import Recipe
from training.weighting import _second_half

WORDS = ["the", "dog", "runs", "sleeps", ","]
VECTORS = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
SIZES = {"latent_dims": 4, "classes": 5, "max_tokens": 16}


@pytest.fixture
def static(tmp_path: Path) -> Backbone:
    words.save(WORDS, VECTORS, tmp_path / "words")
    return load(Checkpoint.read(tmp_path / "words"), 16)


def encode(backbone: Backbone, sentences: list[str], directory: Path) -> EncodedCorpus:
    return EncodedCorpus(
        backbone, prepare(sentences, directory / "c"), VectorCache(directory / "v")
    )


def test_rejects_corpus_without_known_words(static: Backbone, tmp_path: Path) -> None:
    encoded = encode(static, ["der Hund läuft", "die Katze"], tmp_path)
    with pytest.raises(BackboneError, match="No word of the corpus is in the vocabulary of words"):
        make_head(encoded, Recipe(**SIZES, steps=1), "x")


@pytest.mark.parametrize("weighting", ["uniform", "sif", "learned"])
def test_head_on_word_vectors_can_be_served(
    static: Backbone, tmp_path: Path, weighting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.weighting.STEPS", 5)
    sentences = ["the dog runs", "the dog sleeps", "the unknown dog", "the , dog", "nothing"]
    recipe = Recipe(**SIZES, steps=5, token_weighting=weighting)
    head = make_head(encode(static, sentences, tmp_path), recipe, "x", progress=False)
    # Most of the usual probes have no known word, so one is made of its own words.
    assert head.spec.probes[-1] == "the dog runs sleeps ,"
    assert 2 <= len(head.spec.probes) < 16
    head.save(tmp_path / "head")
    directory = str(static.checkpoint.directory)
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "static", directory)
    expected = head.mixtures(static.encode(sentences[:4]))
    mixtures = Encoder(artifact, provider="cpu").encode(sentences[:4]).mixtures
    np.testing.assert_allclose(mixtures, expected, atol=1e-6)


def test_smooth_inverse_frequency(static: Backbone, tmp_path: Path) -> None:
    recipe = Recipe(**SIZES, steps=1, token_weighting="sif")
    encoded = encode(static, ["the dog", "the cat"], tmp_path)
    head = make_head(encoded, recipe, "x", progress=False)
    the, dog, runs, unknown = head.weights(static.encode(["the dog runs unknown"]))
    assert the == pytest.approx(1e-3 / (1e-3 + 2 / 4))
    assert dog == pytest.approx(1e-3 / (1e-3 + 1 / 4))
    assert (runs, unknown) == (1, 0)  # not in the corpus; not in the vocabulary


def test_learns_low_weights_for_words_of_every_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.weighting.STEPS", 60)
    monkeypatch.setattr("training.weighting.SENTENCES", 64)
    # Each sentence repeats one of ten topics among words that all sentences share.
    rng = np.random.default_rng(0)
    topics, common = [f"topic{i}" for i in range(10)], [f"common{i}" for i in range(10)]
    vectors = rng.normal(size=(20, 16)).astype(np.float32)
    vectors[10:] += 2  # a direction by which the common words can be recognised
    words.save([*topics, *common], vectors, tmp_path / "words")
    backbone = load(Checkpoint.read(tmp_path / "words"), 16)
    sentences = [" ".join([topics[i % 10]] * 4 + [*rng.choice(common, 8)]) for i in range(400)]
    recipe = Recipe(
        latent_dims=8,
        classes=6,
        steps=50,
        max_tokens=16,
        token_weighting="learned",
        inference_temperature=0.05,
    )
    encoded = encode(backbone, sentences, tmp_path)
    head = make_head(encoded, recipe, "x", progress=False)
    weights = head.weights(backbone.encode([*topics, *common, "unknown"]))
    assert weights[:10].min() > 2 * weights[10:20].max()
    assert weights[20] == 0
    again = make_head(encoded, recipe, "x", progress=False)
    for name, tensor in head.tensors.items():
        np.testing.assert_array_equal(tensor, again.tensors[name])


def test_rejects_learned_weights_for_contextual_vectors(encoded: EncodedCorpus) -> None:
    recipe = Recipe(**SIZES, steps=1, token_weighting="learned")
    with pytest.raises(LatteMixError, match="is for static word vectors, and tiny-bert0 is not"):
        make_head(encoded, recipe, "x", progress=False)


def test_halves_of_a_sentence_are_random_and_of_equal_size() -> None:
    lengths = np.array([6, 7, 1], np.int32)
    tokens = TokenVectors(np.zeros((14, 2)), np.zeros(14, np.int32), lengths)
    halves = np.array([_second_half(tokens, np.random.default_rng(i)) for i in range(300)])
    assert (halves[:, :6].sum(axis=1) == 3).all()
    assert (halves[:, 6:13].sum(axis=1) == 4).all()
    assert (abs(halves[:, :6].mean(axis=0) - 0.5) < 0.1).all()
