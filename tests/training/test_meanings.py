import shutil
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.assemble import assemble
from lattemix.build.head import Head, HeadError
from lattemix.tokenization import Tokenizer
from model_store import ArtifactError, Store, latents
from model_store.latents import LATENTS
from tests.conftest import SENTENCES
from training import meanings as module
from training.cache import VectorCache
from training.meanings import describe, meanings
from training.pipeline import Encoded
from training.recipe import Recipe


def test_a_class_holds_the_words_whose_tokens_are_most_in_it(
    head: Head, encoded: Encoded, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FEWEST", 1)
    monkeypatch.setattr(module, "_PRIOR", 0)
    found = meanings(head, encoded, recipe)
    tokenizer = Tokenizer(encoded.backbone.checkpoint.tokenizer, recipe.max_tokens)
    shares: dict[str, list[np.ndarray]] = {}
    every = []
    for sentence in SENTENCES:
        vectors = encoded.cache.encode(encoded.backbone, [sentence]).vectors
        distributions = head.distributions(vectors.astype(np.float32))
        every.append(distributions)
        pieces = tokenizer.parse(sentence).pieces
        for piece, distribution in zip(pieces, distributions, strict=True):
            if not piece.special:
                shares.setdefault(piece.token, []).append(distribution)
    means = {word: np.mean(parts, axis=0) for word, parts in shares.items()}
    usage = np.concatenate(every).mean(axis=0)
    for dim in range(4):
        for index in range(5):
            words = found[dim][index].words
            best = sorted(means, key=lambda word: -means[word][dim, index])[: module.SHOWN]
            assert list(words.values()) == pytest.approx(
                [means[word][dim, index] for word in best], abs=0.006
            )
            assert next(iter(words)) in best[:2]  # the first two may be as much in it
            assert found[dim][index].usage == pytest.approx(usage[dim, index], abs=1e-3)


def test_what_was_seen_seldom_counts_less(
    head: Head, encoded: Encoded, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FEWEST", 1)
    monkeypatch.setattr(module, "_PRIOR", 10**6)
    found = meanings(head, encoded, recipe)
    for dim in found:
        for latent in dim:
            assert list(latent.words.values()) == pytest.approx(
                [latent.usage] * len(latent.words), abs=0.01
            )


def test_rare_words_and_marks_are_left_out(head: Head, encoded: Encoded, recipe: Recipe) -> None:
    known = {word for dim in meanings(head, encoded, recipe) for c in dim for word in c.words}
    counts = " ".join(SENTENCES).split()
    assert known == {word for word in counts if counts.count(word) >= 4}


def test_describe_finds_what_training_found(
    head_directory: Path, corpus: Path, backbone: Path, cache: VectorCache, tmp_path: Path
) -> None:
    shutil.copytree(head_directory, tmp_path / "head")
    (tmp_path / "head" / LATENTS).unlink()
    told: list[str] = []
    describe(tmp_path / "head", [corpus], cache, backbone=str(backbone), tell=told.append)
    assert told == [f"Wrote {tmp_path / 'head' / LATENTS}; export the head again to serve it."]
    found = (tmp_path / "head" / LATENTS).read_text(encoding="utf-8")
    assert found == (head_directory / LATENTS).read_text(encoding="utf-8")


def test_a_baseline_has_no_classes_to_describe(
    head: Head, corpus: Path, cache: VectorCache, tmp_path: Path
) -> None:
    spec = head.spec.model_copy(update={"model": "autoencoder"})
    kept = {name: tensor for name, tensor in head.tensors.items() if name == "mean"}
    layers = {"encoder.0.weight": np.zeros((4, 16)), "encoder.0.bias": np.zeros(4)}
    Head(spec, {**kept, **layers}).save(tmp_path)
    with pytest.raises(HeadError, match="is of the autoencoder model, which has no classes"):
        describe(tmp_path, [corpus], cache)


def test_the_words_go_into_the_artifact(
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


def test_another_corpus_than_it_was_trained_on_is_noted(
    head_directory: Path, backbone: Path, cache: VectorCache, tmp_path: Path
) -> None:
    shutil.copytree(head_directory, tmp_path / "head")
    (tmp_path / "other.txt").write_text("\n".join(SENTENCES[:5]))
    told: list[str] = []
    other = [tmp_path / "other.txt"]
    describe(tmp_path / "head", other, cache, backbone=str(backbone), tell=told.append)
    assert told[0] == "Note: it was trained on 10 sentences, not 5."
