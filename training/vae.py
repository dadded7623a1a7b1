"""Autoencoders of token vectors, the paper's categorical VAE and two baselines, and their loss."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from training.orthogonal import check_orthogonal, orthogonal_encoder
from training.recipe import Recipe

HIDDEN_ACTIVATION = nn.ReLU


class TokenVAE(nn.Module):
    """An encoder `H -> code`, a sample of the latent variables, and a decoder back to `H`.

    Encoder and decoder have one to three linear layers; hidden layers have width `H`.
    """

    # Values per latent dim in the code and in the sample; by default the number of classes.
    widths: tuple[int, int] | None = None

    def __init__(self, hidden_size: int, recipe: Recipe) -> None:
        super().__init__()
        self.latent_dims, self.temperature = recipe.latent_dims, recipe.temperature
        widths = self.widths or (recipe.classes, recipe.classes)
        code, sample = (recipe.latent_dims * width for width in widths)
        self.encoder = mlp([hidden_size] * recipe.encoder_layers + [code])
        self.decoder = mlp([sample] + [hidden_size] * recipe.decoder_layers)

    def code(self, tokens: Tensor) -> Tensor:
        """The encoder's output for each latent dim: [T, H] -> [T, L, *]."""
        return self.encoder(tokens).unflatten(-1, (self.latent_dims, -1))

    def sample(self, code: Tensor, noise: Generator | None = None) -> Tensor:
        """Draw the latent variables: [T, L, *] -> [T, L, *]."""
        raise NotImplementedError

    def kl(self, code: Tensor) -> Tensor:
        """KL divergence from the prior, per latent dim: [T, L, *] -> [T, L]."""
        raise NotImplementedError

    def constrain(self) -> None:
        """Restore the constraints on the weights after an update; by default there are none."""

    def forward(self, tokens: Tensor, noise: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return the code [T, L, *] and the reconstruction [T, H] from one sample."""
        code = self.code(tokens)
        return code, self.decoder(self.sample(code, noise).flatten(-2))


class CategoricalVAE(TokenVAE):
    """L categorical variables of C classes. The code is their logits; the prior is uniform."""

    def __init__(self, hidden_size: int, recipe: Recipe) -> None:
        super().__init__(hidden_size, recipe)
        self.is_orthogonal = recipe.encoder == "orthogonal"
        if self.is_orthogonal:
            check_orthogonal(hidden_size, recipe.latent_dims, recipe.classes)
            nn.init.normal_(self._linear.weight)
            self.constrain()

    @property
    def _linear(self) -> nn.Linear:
        layer = self.encoder[0]
        assert isinstance(layer, nn.Linear)
        return layer

    @torch.no_grad()
    def constrain(self) -> None:
        """Make the encoder orthogonal, without bias, if the recipe asks for that."""
        if self.is_orthogonal:
            layer = self._linear
            layer.weight.copy_(orthogonal_encoder(layer.weight, self.latent_dims))
            layer.bias.zero_()

    def sample(self, code: Tensor, noise: Generator | None = None) -> Tensor:
        """Gumbel-softmax: nearly one-hot at a small temperature, and differentiable."""
        exponential = torch.empty_like(code).exponential_(generator=noise)
        gumbel = -exponential.clamp(min=torch.finfo(code.dtype).tiny).log()
        return ((code + gumbel) / self.temperature).softmax(dim=-1)

    def kl(self, code: Tensor) -> Tensor:
        """KL(q || uniform) = log C - H(q)."""
        log_q = torch.log_softmax(code, dim=-1)
        return math.log(code.shape[-1]) + (log_q.exp() * log_q).sum(dim=-1)


class NormalVAE(TokenVAE):
    """L independent Gaussians. The code is (mean, log variance); the prior is N(0, 1)."""

    widths = 2, 1

    def sample(self, code: Tensor, noise: Generator | None = None) -> Tensor:
        """Reparameterised sample: mean + deviation * noise."""
        mean, log_variance = code.split(1, dim=-1)
        normal = torch.empty_like(mean).normal_(generator=noise)
        return mean + (0.5 * log_variance).exp() * normal

    def kl(self, code: Tensor) -> Tensor:
        """KL(N(mean, variance) || N(0, 1))."""
        mean, log_variance = code.unbind(dim=-1)
        return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)


class Autoencoder(TokenVAE):
    """L numbers, no noise and no prior: the effect of dimensionality reduction alone."""

    widths = 1, 1

    def sample(self, code: Tensor, noise: Generator | None = None) -> Tensor:
        """The code itself."""
        return code

    def kl(self, code: Tensor) -> Tensor:
        """Zero: there is no prior."""
        return torch.zeros_like(code[..., 0])


MODELS: dict[str, type[TokenVAE]] = {
    "categorical": CategoricalVAE,
    "normal": NormalVAE,
    "autoencoder": Autoencoder,
}


def linear_tensors(network: nn.Sequential, name: str) -> dict[str, NDArray[np.float32]]:
    """Weights and biases of the linear layers, by their names in a head."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return {
        f"{name}.{index}.{kind}": getattr(layer, kind).detach().cpu().numpy()
        for index, layer in enumerate(layers)
        for kind in ("weight", "bias")
    }


def mlp(widths: list[int]) -> nn.Sequential:
    """Linear layers of these widths with activations in between."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), HIDDEN_ACTIVATION()]
    return nn.Sequential(*layers[:-1])


class Loss(NamedTuple):
    """The loss and its parts, each averaged over the batch's tokens, in nats."""

    total: Tensor
    reconstruction: Tensor
    kl: Tensor  # summed over latent dims, before the threshold


def negative_elbo(
    tokens: Tensor,
    reconstruction: Tensor,
    kl: Tensor,
    beta: float,
    free_bits: float,
    variance: float = 1.0,
) -> Loss:
    """The negative evidence lower bound with KL thresholding.

    Args:
        tokens: targets of the reconstruction, [T, H].
        reconstruction: the mean of the decoder's Gaussian, [T, H].
        kl: KL(q(z|u) || prior) per latent dim, [T, L].
        beta: weight of the KL term.
        free_bits: KL per latent dim, in nats, below which there is no gradient.
        variance: of the decoder's Gaussian; its constant is left out of the loss.
    """
    squared_error = 0.5 / variance * (tokens - reconstruction).square().sum(dim=-1).mean()
    per_dim = kl.mean(dim=0)  # [L]
    thresholded = per_dim.clamp(min=free_bits).sum()
    return Loss(squared_error + beta * thresholded, squared_error.detach(), per_dim.sum().detach())
