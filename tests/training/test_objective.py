import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from training.objective import kl_to_uniform, negative_elbo
from training.schedule import linear_annealing, linear_warmup_decay
from training.vae import CategoricalVAE


def test_kl_to_uniform_is_torchs_closed_form() -> None:
    logits = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(0)) * 3
    expected = kl_divergence(Categorical(logits=logits), Categorical(logits=torch.zeros(6, 3, 5)))
    torch.testing.assert_close(kl_to_uniform(logits), expected)


def test_kl_at_its_ends() -> None:
    assert kl_to_uniform(torch.zeros(1, 1, 8)).item() == pytest.approx(0, abs=1e-6)
    certain = torch.tensor([[[100.0] + [0.0] * 7]])
    assert kl_to_uniform(certain).item() == pytest.approx(math.log(8))


def loss(logits: torch.Tensor, beta: float = 1.0, free_bits: float = 0.3):
    tokens = torch.zeros(len(logits), 2)
    return negative_elbo(tokens, tokens + 1, logits, beta, free_bits)


def test_kl_below_the_threshold_is_charged_at_the_threshold_and_gives_no_gradient() -> None:
    logits = torch.full((4, 3, 5), 0.0, requires_grad=True)
    with torch.no_grad():
        logits[..., 0] = 0.1  # a little information, less than free
    result = loss(logits)
    assert result.kl.item() < 3 * 0.3
    assert result.total.item() == pytest.approx(1 + 3 * 0.3)
    result.total.backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0


def test_kl_above_the_threshold_is_charged_in_full() -> None:
    logits = torch.zeros(4, 3, 5)
    logits[..., 0] = 50
    assert loss(logits).total.item() == pytest.approx(1 + 3 * math.log(5), rel=1e-5)
    assert loss(logits, beta=0.5).total.item() == pytest.approx(1 + 1.5 * math.log(5), rel=1e-5)
    assert loss(logits, beta=0).total.item() == pytest.approx(1)


def test_the_threshold_is_per_dim_not_in_sum() -> None:
    # One dim certain, one uniform: the free part of the second must not pay for the first.
    logits = torch.zeros(4, 2, 5)
    logits[:, 0, 0] = 50
    assert loss(logits).total.item() == pytest.approx(1 + math.log(5) + 0.3, rel=1e-5)


def test_gumbel_softmax_samples_the_distribution_it_is_given() -> None:
    # The arg max of a Gumbel-softmax sample is distributed as softmax(logits), at any temperature.
    torch.manual_seed(0)
    vae = CategoricalVAE(2, 1, 3)
    logits = torch.tensor([0.0, 1.0, 2.0])
    torch.nn.init.zeros_(vae.encoder[0].weight)
    vae.encoder[0].bias.data = logits
    samples = []
    vae.decoder.register_forward_pre_hook(lambda _, inputs: samples.append(inputs[0]))
    vae(torch.zeros(20_000, 2), temperature=0.3)
    counts = samples[0].argmax(dim=-1).bincount(minlength=3) / 20_000
    torch.testing.assert_close(counts, logits.softmax(0), atol=0.015, rtol=0)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_shapes_and_depths(layers: int) -> None:
    vae = CategoricalVAE(6, 4, 5, encoder_layers=layers, decoder_layers=layers)
    logits, reconstruction = vae(torch.zeros(7, 6), temperature=0.3)
    assert logits.shape == (7, 4, 5)
    assert reconstruction.shape == (7, 6)
    linear = [m for m in vae.encoder if isinstance(m, torch.nn.Linear)]
    assert len(linear) == layers


def test_the_learning_rate_rises_and_falls_linearly() -> None:
    rates = [linear_warmup_decay(step, 100, 0.1) for step in range(101)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert max(rates) == rates[9] == rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0


def test_beta_goes_from_zero_to_one() -> None:
    assert [linear_annealing(step, 5) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert linear_annealing(0, 1) == 0
