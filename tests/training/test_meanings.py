import shutil
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.assemble import assemble
from lattemix.build.head import Head, HeadError
from lattemix.tokenization import Tokenizer
from model_store import ArtifactError, Store, latents
from model_store.latents import LATENTS
from tests.tiny import SENTENCES
from training import meanings as module
from training.cache import VectorCache
from training.encoding import EncodedCorpus
from training.meanings import describe, meanings
from training.recipe import Recipe


def test_class_lists_the_words_with_the_largest_shares(
    head: Head, encoded: EncodedCorpus, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_TOKENS", 1)
    monkeypatch.setattr(module, "_PRIOR", 0)
    classes = meanings(head, encoded, recipe)
    tokenizer = Tokenizer(encoded.backbone.checkpoint.tokenizer, recipe.max_tokens)
    shares: dict[str, list[np.ndarray]] = {}
    every = []
    for sentence in SENTENCES:
        vectors = encoded.cache.encode(encoded.backbone, [sentence]).vectors
        distributions = head.distributions(vectors.astype(np.float32))
        every.append(distributions)
        spans = tokenizer.parse(sentence).spans
        for span, distribution in zip(spans, distributions, strict=True):
            if not span.special:
                shares.setdefault(span.token, []).append(distribution)
    means = {word: np.mean(parts, axis=0) for word, parts in shares.items()}
    usage = np.concatenate(every).mean(axis=0)
    for dim in range(4):
        for index in range(5):
            words = classes[dim][index].words
            best = sorted(means, key=lambda word: -means[word][dim, index])[: module.SHOWN]
            assert list(words.values()) == pytest.approx(
                [means[word][dim, index] for word in best], abs=0.006
            )
            assert next(iter(words)) in best[:2]  # two words may have equal shares
            assert classes[dim][index].usage == pytest.approx(usage[dim, index], abs=1e-3)


def test_prior_lowers_the_share_of_rare_words(
    head: Head, encoded: EncodedCorpus, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_TOKENS", 1)
    monkeypatch.setattr(module, "_PRIOR", 10**6)
    classes = meanings(head, encoded, recipe)
    for dim in classes:
        for latent in dim:
            assert list(latent.words.values()) == pytest.approx(
                [latent.usage] * len(latent.words), abs=0.01
            )


def test_omits_rare_words_and_punctuation(
    head: Head, encoded: EncodedCorpus, recipe: Recipe
) -> None:
    known = {word for dim in meanings(head, encoded, recipe) for c in dim for word in c.words}
    counts = " ".join(SENTENCES).split()
    assert known == {word for word in counts if counts.count(word) >= 4}


def test_describe_writes_the_words_of_the_classes(
    head: Head,
    encoded: EncodedCorpus,
    recipe: Recipe,
    corpus: Path,
    backbone: Path,
    cache: VectorCache,
    tmp_path: Path,
) -> None:
    head.save(tmp_path / "head")
    messages: list[str] = []
    describe(tmp_path / "head", [corpus], cache, backbone=str(backbone), notify=messages.append)
    assert messages == [f"Wrote {tmp_path / 'head' / LATENTS}; export the head again to serve it."]
    digest = Head.load(tmp_path / "head").spec.sha256
    written = latents.read(tmp_path / "head" / LATENTS, digest, 4, 5)
    assert written == meanings(head, encoded, recipe)


def test_describe_rejects_baselines(
    head: Head, corpus: Path, cache: VectorCache, tmp_path: Path
) -> None:
    spec = head.spec.model_copy(update={"model": "autoencoder"})
    kept = {name: tensor for name, tensor in head.tensors.items() if name == "mean"}
    layers = {"encoder.0.weight": np.zeros((4, 16)), "encoder.0.bias": np.zeros(4)}
    Head(spec, {**kept, **layers}).save(tmp_path)
    with pytest.raises(HeadError, match="is of the autoencoder model, which has no classes"):
        describe(tmp_path, [corpus], cache)


def test_artifact_holds_the_words_and_rejects_those_of_another_head(
    head_directory: Path, store: Store, backbone: Path, tmp_path: Path
) -> None:
    artifact, digest = store.open("tiny"), str(Head.load(head_directory).spec.sha256)
    expected = latents.read(head_directory / LATENTS, digest, 4, 5)
    assert latents.read(artifact.path / LATENTS, digest, 4, 5) == expected
    shutil.copytree(head_directory, tmp_path / "head")
    for wrong, message in (
        ((expected[1:], digest), "describes 3 latent dims"),
        ((expected, "0" * 64), "describes another head"),
    ):
        latents.write(*wrong, tmp_path / "head")
        with pytest.raises(ArtifactError, match=message):
            assemble(tmp_path / "head", Store(tmp_path / "store"), "tiny", str(backbone))


def test_describe_notes_another_corpus(
    head_directory: Path, backbone: Path, cache: VectorCache, tmp_path: Path
) -> None:
    shutil.copytree(head_directory, tmp_path / "head")
    (tmp_path / "other.txt").write_text("\n".join(SENTENCES[:5]))
    messages: list[str] = []
    other = [tmp_path / "other.txt"]
    describe(tmp_path / "head", other, cache, backbone=str(backbone), notify=messages.append)
    assert messages[0] == "Note: the head was trained on 10 sentences; this corpus has 5."


def test_describe_accepts_a_head_without_training_figures(
    head: Head, corpus: Path, backbone: Path, cache: VectorCache, tmp_path: Path
) -> None:
    Head(head.spec.model_copy(update={"training": {}}), head.tensors).save(tmp_path / "head")
    messages: list[str] = []
    describe(tmp_path / "head", [corpus], cache, backbone=str(backbone), notify=messages.append)
    assert len(messages) == 1
