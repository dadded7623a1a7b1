import json
import signal
from pathlib import Path

import pytest
import torch

from model_store import LatteMixError
from training.checkpoint import TrainingCheckpoint
from training.interrupt import Interrupted
from training.monitor import latent_figures
from training.recipe import Recipe
from training.trainer import (
    cyclical_annealing,
    learning_rate,
    linear_annealing,
    linear_warmup_decay,
    train,
)
from training.vae import CategoricalVAE, negative_elbo

TOKENS = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))

SMALL = {"latent_dims": 8, "classes": 4, "learning_rate": 1e-2, "steps": 50}


def batch(step: int) -> torch.Tensor:
    return TOKENS[torch.randint(2000, (64,), generator=torch.Generator().manual_seed(step))]


def fit(recipe: Recipe, run: TrainingCheckpoint | None = None, steps: int | None = None):
    return train(batch, 8, recipe, steps or recipe.steps, run, progress=False)


@pytest.mark.parametrize("model", ["categorical", "normal", "autoencoder"])
def test_training_lowers_the_loss(model: str) -> None:
    recipe = Recipe(**SMALL | {"model": model, "steps": 150})
    first, last = fit(recipe, steps=1)[1], fit(recipe)[1]
    assert last["reconstruction"] < 0.75 * first["reconstruction"]


def weights(vae: torch.nn.Module) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in vae.parameters())


def test_seed_determines_the_weights() -> None:
    recipe = Recipe(**SMALL)
    first = weights(fit(recipe)[0])
    torch.rand(3)  # other code uses the global generator
    assert weights(fit(recipe)[0]) == first
    assert weights(fit(recipe.model_copy(update={"seed": 1}))[0]) != first


class KilledError(Exception):
    pass


@pytest.mark.parametrize("interrupted_at", [1, 10, 33])
def test_interrupt_during_encoding_saves_the_finished_steps(
    tmp_path: Path, interrupted_at: int
) -> None:
    recipe, run = Recipe(**SMALL), TrainingCheckpoint(tmp_path, {})
    expected = weights(fit(recipe)[0])

    def interrupting(step: int) -> torch.Tensor:
        if step == interrupted_at:
            raise Interrupted(signal.SIGINT)
        return batch(step)

    with pytest.raises(Interrupted):
        train(interrupting, 8, recipe, 50, run, progress=False)
    steps: list[int] = []
    resumed, _ = train(lambda step: steps.append(step) or batch(step), 8, recipe, 50, run, False)
    assert steps[0] == interrupted_at
    assert weights(resumed) == expected


@pytest.mark.parametrize("killed_at", [9, 10, 33, 49])
def test_killed_run_resumes_to_the_same_weights_and_log(tmp_path: Path, killed_at: int) -> None:
    recipe = Recipe(**SMALL)
    whole = TrainingCheckpoint(tmp_path / "whole", {}, every=10)
    expected = weights(fit(recipe, whole)[0])
    run = TrainingCheckpoint(tmp_path / "run", {}, every=10)

    def killing(step: int) -> torch.Tensor:
        if step == killed_at:
            raise KilledError
        return batch(step)

    with pytest.raises(KilledError):
        train(killing, 8, recipe, 50, run, progress=False)
    assert run.path.exists() == (killed_at >= 10)
    resumed, figures = fit(recipe, run)
    assert weights(resumed) == expected
    # Killed once more, after the last step: the figures of the run must not be lost.
    again, last = fit(recipe, run)
    assert (weights(again), last) == (expected, figures)

    def logged(directory: Path) -> list[dict[str, float]]:
        lines = (directory / "log.jsonl").read_text().splitlines()
        return [json.loads(line) | {"tokens_per_second": 0} for line in lines]

    assert logged(tmp_path / "run") == logged(tmp_path / "whole")
    assert [entry["step"] for entry in logged(tmp_path / "run")] == [0, 20, 40, 49]


def test_rejects_and_keeps_the_checkpoint_of_another_run(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL)
    fit(
        recipe, TrainingCheckpoint(tmp_path, {"corpus": "a" * 64, "classes": 4}, every=10), steps=20
    )
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    other = TrainingCheckpoint(tmp_path, {"corpus": "b" * 64, "classes": 5})
    says = r"another classes \(then 4, now 5\), corpus \(then aaaaaaaaaaaa…, now bbbbbbbbbbbb…\)"
    with pytest.raises(LatteMixError, match=says):
        fit(recipe, other)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


def test_rejects_a_damaged_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(LatteMixError, match=r"is damaged .* start over with --restart"):
        fit(Recipe(**SMALL), TrainingCheckpoint(tmp_path, {}))


def test_rejects_a_diverging_run(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL | {"learning_rate": 1e30, "warmup": 0.0})
    with pytest.raises(LatteMixError, match=r"The loss is \S+ at step \d+: lower learning_rate"):
        fit(recipe, TrainingCheckpoint(tmp_path, {}, every=1))


def test_warns_of_collapse(capsys: pytest.CaptureFixture[str]) -> None:
    # Equal tokens leave nothing to encode.
    recipe = Recipe(**SMALL | {"free_bits": 0.0, "beta_schedule": "constant"})
    train(lambda step: torch.zeros(16, 8), 8, recipe, 50, progress=False)
    assert "only 0 of 8 latent dims carry information" in capsys.readouterr().err
    fit(Recipe(**SMALL))
    assert capsys.readouterr().err == ""


def test_constant_dim_is_not_in_use() -> None:
    vae = CategoricalVAE(8, Recipe(**SMALL))
    code = torch.zeros(100, 8, 4)
    code[:, 0, 2] = 20  # certain, and always the same
    code[range(100), 1, torch.arange(100) % 4] = 20  # certain, and different
    figures = latent_figures(vae, code)
    assert figures["dims_in_use"] == 1
    assert figures["classes_in_use"] == pytest.approx((1 + 7 * 4) / 8, abs=0.01)


def test_every_step_uses_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rates = [], []

    def watching(tokens, reconstruction, kl, beta, free_bits):
        seen.append((len(tokens), beta, free_bits))
        return negative_elbo(tokens, reconstruction, kl, beta, free_bits)

    step = torch.optim.Adam.step

    def stepping(adam, *arguments):
        rates.append(adam.param_groups[0]["lr"])
        return step(adam, *arguments)

    monkeypatch.setattr("training.trainer.negative_elbo", watching)
    monkeypatch.setattr(torch.optim.Adam, "step", stepping)
    changes = {"steps": 5, "temperature": 0.7, "free_bits": 0.2, "warmup": 0.4}
    vae, _ = fit(Recipe(**SMALL | changes))
    assert seen == [(64, beta, 0.2) for beta in (0, 0.25, 0.5, 0.75, 1)]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01 * 2 / 3, 0.01 / 3])
    assert vae.temperature == 0.7


def test_skips_a_batch_without_tokens() -> None:
    empty = torch.zeros(0, 8)
    vae, _ = train(
        lambda step: batch(step) if step % 2 else empty, 8, Recipe(**SMALL), 10, progress=False
    )
    assert all(torch.isfinite(p).all() for p in vae.parameters())


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
    assert [linear_annealing(step, 5) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert linear_annealing(0, 1) == 0


def test_cyclical_beta_has_four_cycles() -> None:
    betas = [cyclical_annealing(step, 80) for step in range(80)]
    assert betas[:20] == betas[20:40] == betas[60:]
    assert betas[:11] == pytest.approx([i / 10 for i in range(11)])
    assert betas[11:20] == [1] * 9
