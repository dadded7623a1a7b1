import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from tests.tiny import SENTENCES, write_static
from tests.training.conftest import SMALL, Run, fit, settings
from training.cache import VectorCache
from training.encoding import EncodedCorpus
from training.evaluate.scores import encode, head_scores, pooling_scores, random_control
from training.heads import make_head, untrained_head
from training.orthogonal import orthogonal_encoder, uniform_centre
from training.recipe import Recipe
from training.vae import CategoricalVAE

ORTHOGONAL = {"encoder": "orthogonal", "normalisation": "none"}


def recipe(**changes: object) -> Recipe:
    shape = {"latent_dims": 9, "classes": 5, "steps": 2, "max_tokens": 16}
    return Recipe.model_validate(shape | ORTHOGONAL | changes)


def assert_orthogonal(weight: torch.Tensor, latent_dims: int, atol: float = 1e-5) -> None:
    outputs, hidden_size = weight.shape
    gram = weight.double().T @ weight.double()
    expected = torch.eye(hidden_size).double() * outputs / (3 * hidden_size)
    torch.testing.assert_close(gram, expected, atol=atol, rtol=0)
    class_means = weight.unflatten(0, (latent_dims, -1)).mean(dim=1)
    assert class_means.abs().max() < atol


def test_has_orthonormal_columns_and_zero_mean_over_the_classes() -> None:
    weight = torch.randn(9 * 5, 32, generator=torch.Generator().manual_seed(0))
    assert_orthogonal(orthogonal_encoder(weight, 9), 9)


def test_projection_is_idempotent() -> None:
    weight = torch.randn(9 * 5, 32, generator=torch.Generator().manual_seed(0))
    once = orthogonal_encoder(weight, 9)
    torch.testing.assert_close(orthogonal_encoder(once, 9), once)


def test_training_moves_the_encoder_and_keeps_it_orthogonal() -> None:
    small = Recipe.model_validate(SMALL | ORTHOGONAL)
    torch.manual_seed(small.seed)
    start = CategoricalVAE(8, small).encoder[0].weight.detach()
    vae, _ = fit(small)
    assert_orthogonal(vae.encoder[0].weight.detach(), small.latent_dims)
    assert vae.encoder[0].bias.abs().max() == 0
    assert (vae.encoder[0].weight - start).abs().max() > 0.01


@pytest.mark.parametrize("trained", [False, True])
def test_centred_is_mean_pooling_at_a_high_temperature(
    encoded: EncodedCorpus, cache: VectorCache, trained: bool
) -> None:
    """The guarantee: mean pooling is the limit of the mixture, with any corpus or none."""
    tokens = encode(encoded.backbone, cache, SENTENCES)
    left, right = np.triu_indices(len(SENTENCES), 1)
    pooled = pooling_scores(tokens, left, right, static=False)["mean"]
    differences = []
    for temperature in (1.0, 10.0, 100.0):
        hot = recipe(temperature=temperature)
        head = make_head(encoded, hot, "") if trained else untrained_head(encoded.backbone, hot)
        scores = head_scores(head, tokens, left, right)["centred"]
        differences.append(np.abs(scores - pooled).max())
    assert differences[1] < differences[0] / 5
    assert differences[2] < 5e-3


def test_equal_norm_gives_every_token_the_same_weight(
    encoded: EncodedCorpus, cache: VectorCache
) -> None:
    hot = recipe(normalisation="equal-norm", temperature=100.0)
    tokens = encode(encoded.backbone, cache, SENTENCES)
    vectors = tokens.vectors.astype(np.float32)
    units = replace(tokens, vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    left, right = np.triu_indices(len(SENTENCES), 1)
    pooled = pooling_scores(units, left, right, static=False)["mean"]
    head = untrained_head(encoded.backbone, hot)
    scores = head_scores(head, tokens, left, right)["centred"]
    np.testing.assert_allclose(scores, pooled, atol=5e-3)


def test_control_is_an_untrained_orthogonal_encoder(encoded: EncodedCorpus) -> None:
    head = make_head(encoded, recipe(), "")
    control = random_control(head, seed=1)
    assert_orthogonal(torch.from_numpy(control.encoder[0][0]), 9, atol=1e-3)
    assert not np.allclose(control.encoder[0][0], head.encoder[0][0], atol=0.01)
    np.testing.assert_array_equal(control.tensors["centre"], uniform_centre(9, 5))


def test_init_writes_a_head_that_can_be_exported(
    run: Run, backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = settings(latent_dims=9, classes=5, max_tokens=16)
    out = tmp_path / "heads" / "mine"
    assert run("init", "--backbone", backbone, "--out", out, *shape) == 0
    assert "lattemix-train export --head" in capsys.readouterr().err
    store = tmp_path / "store"
    assert run("export", "--head", out, "--backbone", backbone, "--store", store) == 0
    head = Head.load(out)
    assert head.spec.recipe["steps"] == 0
    assert head.spec.normalisation == "equal-norm"
    again = str(run("init", "--backbone", backbone, "--out", out, *shape))
    assert "holds a finished head: choose another --out" in again


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latent_dims": 2}, "latent_dims x .classes - 1. of at least 16; 2 x 4 is less"),
        ({"encoder_layers": 2}, "encoder 'orthogonal' needs model 'categorical'"),
        ({"encoder": "free"}, "A head without a corpus needs encoder 'orthogonal'"),
        ({"token_weighting": "sif"}, "needs encoder 'orthogonal', token_weighting 'uniform'"),
        ({"normalisation": "centre"}, "normalisation 'equal-norm' or 'none'"),
    ],
)
def test_init_rejects_what_it_cannot_initialise(
    run: Run, backbone: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    shape = settings(**{"latent_dims": 9, "classes": 5, "max_tokens": 16} | changes)
    error = str(run("init", "--backbone", backbone, "--out", tmp_path / "head", *shape))
    assert re.search(message, error)
    assert not (tmp_path / "head").exists()


def test_init_ignores_unknown_words_of_static_vectors(run: Run, tmp_path: Path) -> None:
    write_static(tmp_path / "words", tmp_path / "other")
    shape = settings(latent_dims=9, classes=5, max_tokens=16)
    out = tmp_path / "head"
    assert run("init", "--backbone", tmp_path / "words", "--out", out, *shape) == 0
    unknown = Checkpoint.read(tmp_path / "words").ignored_ids
    assert Head.load(out).tensors["weighted.ids"].tolist() == list(unknown)
    assert Head.load(out).tensors["weighted.weights"].tolist() == [0]


def test_train_rejects_zero_steps(run: Run, arguments: list[str], tmp_path: Path) -> None:
    error = run(*arguments, "--set", "steps=0", "--out", tmp_path / "head")
    assert "`lattemix-train init` writes an untrained head" in str(error)
