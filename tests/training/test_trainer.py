from pathlib import Path

import pytest
import torch

from model_store import LatteMixError
from tests.training.conftest import SMALL, batch, fit, weights
from training.checkpoint import TrainingCheckpoint
from training.monitor import LOG, read_log
from training.objectives import Elbo
from training.recipe import Recipe
from training.trainer import (
    cyclical_annealing,
    learning_rate,
    linear_annealing,
    linear_warmup_decay,
    train,
)
from training.vae import negative_elbo


@pytest.mark.parametrize("model", ["categorical", "normal", "autoencoder"])
def test_training_lowers_the_loss(model: str) -> None:
    recipe = Recipe(**SMALL | {"model": model, "steps": 150})
    first, last = fit(recipe, steps=1)[1], fit(recipe)[1]
    assert last["reconstruction"] < 0.75 * first["reconstruction"]


def test_seed_determines_the_weights() -> None:
    recipe = Recipe(**SMALL)
    first = weights(fit(recipe)[0])
    torch.rand(3)  # other code uses the global generator
    assert weights(fit(recipe)[0]) == first
    assert weights(fit(recipe.model_copy(update={"seed": 1}))[0]) != first


def test_rejects_a_diverging_run(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL | {"learning_rate": 1e30, "warmup": 0.0})
    with pytest.raises(LatteMixError, match=r"The loss is \S+ at step \d+: lower learning_rate"):
        fit(recipe, TrainingCheckpoint(tmp_path, {}, every=1))


def test_every_step_uses_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rates = [], []

    def watching(tokens, reconstruction, kl, beta, free_bits, variance):
        seen.append((len(tokens), beta, free_bits, variance))
        return negative_elbo(tokens, reconstruction, kl, beta, free_bits, variance)

    step = torch.optim.Adam.step

    def stepping(adam, *arguments):
        rates.append(adam.param_groups[0]["lr"])
        return step(adam, *arguments)

    monkeypatch.setattr("training.objectives.negative_elbo", watching)
    monkeypatch.setattr(torch.optim.Adam, "step", stepping)
    changes = {"steps": 5, "temperature": 0.7, "free_bits": 0.2, "warmup": 0.4}
    changes |= {"observation_variance": 2.0}
    vae, _ = fit(Recipe(**SMALL | changes))
    assert seen == [(64, beta, 0.2, 2.0) for beta in (0, 0.25, 0.5, 0.75, 1)]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01 * 2 / 3, 0.01 / 3])
    assert vae.temperature == 0.7


def test_logs_and_saves_batches_without_tokens(tmp_path: Path) -> None:
    def sparse(step: int) -> torch.Tensor:
        return batch(step) if step % 2 == 0 and step > 0 else torch.zeros(0, 8)

    run = TrainingCheckpoint(tmp_path, {}, every=1)
    vae, figures = train(Elbo(sparse, 8, Recipe(**SMALL)), Recipe(**SMALL), 10, run, progress=False)
    assert all(torch.isfinite(p).all() for p in vae.parameters())
    assert figures["loss"] > 0
    assert [entry["step"] for entry in read_log(tmp_path / LOG)] == [9]  # no update before step 2
    resumed, _ = train(
        Elbo(sparse, 8, Recipe(**SMALL)), Recipe(**SMALL), 10, run, progress=False
    )  # nothing left to do
    assert weights(resumed) == weights(vae)


def test_learning_rate_rises_and_falls_linearly() -> None:
    rates = [linear_warmup_decay(step, 100, 0.1) for step in range(101)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert max(rates) == rates[9] == rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0


def test_learning_rate_ends_at_its_floor() -> None:
    settings = {"learning_rate": 1.0, "learning_rate_floor": 0.2, "warmup": 0.1, "steps": 100}
    recipe = Recipe(**settings)
    rates = [learning_rate(recipe, step, 100) for step in range(101)]
    assert max(rates) == pytest.approx(1)
    assert rates[100] == pytest.approx(0.2)
    assert rates[55] == pytest.approx(0.6)
    constant = Recipe(**settings, learning_rate_schedule="constant")
    assert {learning_rate(constant, step, 100) for step in range(100)} == {1.0}


def test_linear_beta_rises_from_zero_to_one() -> None:
    assert [linear_annealing(step, 5, 1) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert [linear_annealing(step, 5, 0.5) for step in range(5)] == [0, 0.5, 1, 1, 1]
    assert linear_annealing(0, 1, 1) == 0


def test_cyclical_beta_has_four_cycles() -> None:
    betas = [cyclical_annealing(step, 80, 1) for step in range(80)]
    assert betas[:20] == betas[20:40] == betas[60:]
    assert betas[:11] == pytest.approx([i / 10 for i in range(11)])
    assert betas[11:20] == [1] * 9
