import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from model_store import LatteMixError
from training import corpus as corpora
from training import objective
from training.backbones.sources import BackboneError, Checkpoint
from training.backbones.transformer import Transformer
from training.export.graph import ExportError
from training.head import Head, normalise
from training.pipeline import make_head
from training.recipe import RECIPES, Recipe
from training.trainer import train


def tokens() -> torch.Tensor:
    return torch.randn(200, 8, generator=torch.Generator().manual_seed(1))


def test_training_lowers_the_loss() -> None:
    settings = {"latent_dims": 8, "classes": 4, "batch_tokens": 64, "learning_rate": 1e-2}
    short = train(tokens(), Recipe(steps=1, **settings), progress=False)[1]
    long = train(tokens(), Recipe(steps=300, **settings), progress=False)[1]
    assert long.reconstruction < 0.7 * short.reconstruction


def test_the_same_seed_gives_the_same_head(
    checkpoint: Checkpoint, corpus: Path, recipe: Recipe, tmp_path: Path
) -> None:
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        make_head(checkpoint, corpus, recipe.model_copy(update={"seed": seed}), "x").save(
            tmp_path / name
        )
    a, b, c = ((tmp_path / name / "head.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_head_reads_back_as_it_was_measured(
    head: Head, checkpoint: Checkpoint, head_directory: Path
) -> None:
    # The encoder is stored in half precision; the probes were measured after that rounding.
    backbone = Transformer(checkpoint, head.spec.max_tokens)
    probes = [head.mixture(v.numpy()) for v in backbone.token_vectors(head.spec.probes)]
    np.testing.assert_allclose(np.stack(probes), head.tensors["probes"], atol=1e-7)
    assert (head_directory / "head.safetensors").stat().st_mode & 0o044


def test_the_centre_is_the_mean_root_mixture(
    head: Head, checkpoint: Checkpoint, corpus: Path
) -> None:
    backbone = Transformer(checkpoint, head.spec.max_tokens)
    sentences = corpus.read_text().splitlines()
    roots = [np.sqrt(head.mixture(v.numpy())) for v in backbone.token_vectors(sentences)]
    np.testing.assert_allclose(head.tensors["centre"], np.mean(roots, axis=0), atol=1e-6)


def test_a_layer_can_be_chosen_and_a_wrong_one_is_named(checkpoint: Checkpoint) -> None:
    text = ["a dog runs"]
    (first,), (last,) = (Transformer(checkpoint, 16, n).token_vectors(text) for n in (0, None))
    assert first.shape == last.shape == (5, 16)
    assert not torch.allclose(first, last)
    with pytest.raises(BackboneError, match="has 2 layers, so layer 3 is none of them"):
        Transformer(checkpoint, 16, 3)


def test_normalisation() -> None:
    vectors = np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 2.0]], np.float32)
    mean = np.array([2.0, 2.0], np.float32)
    assert normalise(vectors, mean, "none") is vectors
    np.testing.assert_array_equal(normalise(vectors, mean, "centre"), vectors - mean)
    equal = normalise(vectors, mean, "centre-equal-norm")
    np.testing.assert_allclose(np.linalg.norm(equal, axis=1), [np.sqrt(2), np.sqrt(2), 0])
    assert np.isfinite(equal).all()


def test_a_sample_is_distinct_seeded_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(["same", " same ", "", *map(str, range(1000))]))
    first = corpora.sample(path, 50, seed=3)
    assert len(first) == len(set(first)) == 50
    assert first == corpora.sample(path, 50, seed=3)
    assert first != corpora.sample(path, 50, seed=4)
    everything = corpora.sample(path, 5000, seed=0)
    assert sorted(everything) == sorted({"same", *map(str, range(1000))})


def test_every_sentence_is_as_likely_to_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(map(str, range(10))))
    counts = np.zeros(10)
    for seed in range(2000):
        counts[[int(s) for s in corpora.sample(path, 3, seed)]] += 1
    assert abs(counts / 2000 - 0.3).max() < 0.05


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "holds no sentences"), (b"\n \n", "holds no sentences"), (b"\xff\xfe", "is not UTF-8")],
)
def test_a_corpus_without_sentences(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(LatteMixError, match=says):
        corpora.sample(path, 5, 0)


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LatteMixError, match=r"Cannot read the corpus .*: No such file"):
        corpora.sample(tmp_path / "none", 5, 0)


def test_the_shipped_recipe_is_readable_and_can_be_overridden() -> None:
    recipe = Recipe.load(RECIPES / "default.toml", seed=5, steps=None)
    assert (recipe.latent_dims, recipe.classes, recipe.seed, recipe.steps) == (128, 20, 5, 600)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("classes = 1", "classes: Input should be greater than 1"),
        ("colour = 'red'", "colour: Extra inputs"),
        ("classes =", "is not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_explained(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(LatteMixError, match=says):
        Recipe.load(path)


def test_code_that_comes_with_a_backbone_is_never_run(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    (directory / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.X", "AutoModel": "evil.Y"}}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackboneError, match="cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)
    assert not (tmp_path / "ran").exists()


def test_damaged_weights_are_a_sentence(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(BackboneError, match="b cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)


def test_what_cannot_be_exported_is_not_trained_on(
    backbone: Path, corpus: Path, recipe: Recipe, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    config = json.loads((directory / "config.json").read_text()) | {"model_type": "gpt2"}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportError, match="cannot be exported yet"):
        make_head(Checkpoint.read(directory), corpus, recipe, "x")


def test_a_line_without_words_does_not_stop_training(checkpoint: Checkpoint) -> None:
    # A tokenizer may find nothing in a line that is not blank; its special tokens remain.
    vectors = Transformer(checkpoint, 16).token_vectors(["a dog", " "])
    assert [len(states) for states in vectors] == [4, 2]


def test_the_recipe_reaches_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watching(batch, reconstruction, logits, beta, free_bits):
        seen.append((len(batch), beta, free_bits))
        return objective.negative_elbo(batch, reconstruction, logits, beta, free_bits)

    temperatures = []
    sample = torch.nn.functional.gumbel_softmax

    def sampling(logits, tau, dim):
        temperatures.append(tau)
        return sample(logits, tau=tau, dim=dim)

    monkeypatch.setattr("training.trainer.negative_elbo", watching)
    monkeypatch.setattr("training.vae.functional.gumbel_softmax", sampling)
    settings = {"latent_dims": 2, "classes": 3, "batch_tokens": 7, "free_bits": 0.2}
    train(tokens(), Recipe(steps=5, temperature=0.7, **settings), progress=False)
    assert seen == [(7, beta, 0.2) for beta in (0, 0.25, 0.5, 0.75, 1)]
    assert temperatures == [0.7] * 5
