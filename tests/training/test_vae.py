import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from training.recipe import Recipe
from training.vae import (
    MODELS,
    Autoencoder,
    CategoricalVAE,
    NormalVAE,
    TokenVAE,
    negative_elbo,
)


def recipe(**changes: object) -> Recipe:
    return Recipe.model_validate({"latent_dims": 3, "classes": 5, "steps": 1} | changes)


def noise() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_categorical_kl_matches_torch() -> None:
    logits = torch.randn(6, 3, 5, generator=noise()) * 3
    expected = kl_divergence(Categorical(logits=logits), Categorical(logits=torch.zeros(6, 3, 5)))
    torch.testing.assert_close(CategoricalVAE(4, recipe()).kl(logits), expected)


def test_categorical_kl_is_zero_if_uniform_and_log_c_if_certain() -> None:
    kl = CategoricalVAE(4, recipe(classes=8)).kl
    assert kl(torch.zeros(1, 1, 8)).item() == pytest.approx(0, abs=1e-6)
    assert kl(torch.tensor([[[100.0] + [0.0] * 7]])).item() == pytest.approx(math.log(8))


def test_normal_kl_matches_torch() -> None:
    code = torch.randn(6, 3, 2, generator=noise())
    mean, log_variance = code.unbind(-1)
    expected = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0))
    torch.testing.assert_close(NormalVAE(4, recipe()).kl(code), expected)


def test_autoencoder_has_neither_kl_nor_noise() -> None:
    vae = Autoencoder(4, recipe())
    code, first = vae(torch.ones(2, 4), noise())
    assert vae.kl(code).shape == (2, 3)
    assert vae.kl(code).abs().sum() == 0
    torch.testing.assert_close(vae(torch.ones(2, 4))[1], first)


def loss(kl: torch.Tensor, beta: float = 1.0, free_bits: float = 0.3):
    tokens = torch.zeros(len(kl), 2)
    return negative_elbo(tokens, tokens + 1, kl, beta, free_bits)


def test_kl_below_the_threshold_has_no_gradient() -> None:
    kl = torch.full((4, 3), 0.1, requires_grad=True)
    result = loss(kl)
    assert result.kl.item() == pytest.approx(0.3)
    assert result.total.item() == pytest.approx(1 + 3 * 0.3)
    result.total.backward()
    assert kl.grad is not None
    assert kl.grad.abs().max() == 0


def test_kl_above_the_threshold_counts_in_full() -> None:
    kl = torch.full((4, 3), 1.5)
    assert loss(kl).total.item() == pytest.approx(1 + 3 * 1.5)
    assert loss(kl, beta=0.5).total.item() == pytest.approx(1 + 0.5 * 3 * 1.5)
    assert loss(kl, beta=0).total.item() == pytest.approx(1)


def test_threshold_applies_per_dim_to_the_batch_mean() -> None:
    # One dim above the threshold, one below it.
    kl = torch.tensor([[1.5, 0.0], [1.5, 0.0]])
    assert loss(kl).total.item() == pytest.approx(1 + 1.5 + 0.3)
    # Two tokens that differ are averaged before the threshold is applied.
    assert loss(torch.tensor([[0.8], [0.0]])).total.item() == pytest.approx(1 + 0.4)


def test_reconstruction_is_the_gaussian_log_density_up_to_a_constant() -> None:
    tokens, mean = torch.randn(5, 4, generator=noise()), torch.randn(5, 4, generator=noise()) + 1
    density = -Normal(mean, 1.0).log_prob(tokens).sum(-1).mean() - 2 * math.log(2 * math.pi)
    loss = negative_elbo(tokens, mean, torch.zeros(5, 1), 0, 0)
    assert loss.reconstruction.item() == pytest.approx(density.item(), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0])
def test_gumbel_softmax_samples_follow_the_distribution(temperature: float) -> None:
    # The arg max of a Gumbel-softmax sample is distributed as softmax(logits), at any temperature.
    vae = CategoricalVAE(2, recipe(temperature=temperature))
    logits = torch.tensor([0.0, 1.0, 2.0])
    samples = vae.sample(logits.expand(20_000, 1, 3), noise())
    torch.testing.assert_close(samples.sum(-1), torch.ones(20_000, 1))
    counts = samples.argmax(dim=-1).flatten().bincount(minlength=3) / 20_000
    torch.testing.assert_close(counts, logits.softmax(0), atol=0.015, rtol=0)


def test_samples_are_nearly_one_hot_at_a_low_temperature() -> None:
    logits = torch.zeros(1000, 1, 5)
    cold, warm = (
        CategoricalVAE(2, recipe(temperature=t)).sample(logits, noise()) for t in (0.03, 2.0)
    )
    assert cold.amax(-1).mean() > 0.95
    assert warm.amax(-1).mean() < 0.6


def test_normal_samples_have_the_mean_and_deviation_of_the_code() -> None:
    code = torch.tensor([2.0, math.log(0.25)]).expand(20_000, 1, 2)
    samples = NormalVAE(2, recipe()).sample(code, noise())
    assert samples.mean().item() == pytest.approx(2, abs=0.02)
    assert samples.std().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_gradients_match_finite_differences(model: str) -> None:
    torch.manual_seed(0)
    vae: TokenVAE = MODELS[model](3, recipe(latent_dims=2, temperature=1.0)).double()
    tokens = torch.randn(4, 3, dtype=torch.float64)

    def objective(weight: torch.Tensor) -> torch.Tensor:
        parameters = dict(vae.named_parameters()) | {"encoder.0.weight": weight}
        code, reconstruction = torch.func.functional_call(vae, parameters, (tokens, noise()))
        return negative_elbo(tokens, reconstruction, vae.kl(code), 0.7, 0.0).total

    weight = vae.encoder[0].weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(objective, weight)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(
    ("model", "width"), [("categorical", 5), ("normal", 2), ("autoencoder", 1)]
)
def test_shapes_and_number_of_layers(model: str, width: int, layers: int) -> None:
    vae = MODELS[model](6, recipe(encoder_layers=layers, decoder_layers=layers))
    code, reconstruction = vae(torch.zeros(7, 6))
    assert code.shape == (7, 3, width)
    assert reconstruction.shape == (7, 6)
    linear = [m for m in vae.encoder if isinstance(m, torch.nn.Linear)]
    assert len(linear) == layers
