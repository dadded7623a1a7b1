"""Training objectives: the model that is fitted and the loss of every step."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Generator, Tensor

from training.device import autocast, device
from training.recipe import Recipe
from training.vae import MODELS, TokenVAE, negative_elbo

Batch = TypeVar("Batch")


class Outcome(NamedTuple):
    """The loss of one step and what it was computed from."""

    loss: Tensor
    parts: Mapping[str, Tensor]  # terms of the loss, by their names in the log
    code: Tensor  # [T, L, *], the encoder's output for the step's tokens


class Objective(Protocol[Batch]):
    """A model and its loss, which depends only on the step and the model."""

    @property
    def vae(self) -> TokenVAE:
        """The model."""
        ...

    def batch(self, step: int) -> Batch | None:
        """The data of a step; None if it has no tokens."""
        ...

    def evaluate(self, batch: Batch, step: int, beta: float) -> Outcome:
        """The loss of a step, given the weight `beta` of the KL term."""
        ...


class Elbo:
    """The paper's objective: reconstruct each token from a sample of its latent variables."""

    def __init__(self, tokens: Callable[[int], Tensor], hidden_size: int, recipe: Recipe) -> None:
        """Initialise the model; `tokens` returns the normalised token vectors [T, H] of a step."""
        torch.manual_seed(recipe.seed)
        self.vae: TokenVAE = MODELS[recipe.model](hidden_size, recipe)
        self._tokens, self._recipe = tokens, recipe

    def batch(self, step: int) -> Tensor | None:
        """The token vectors of a step: [T, H]."""
        tokens = self._tokens(step).to(device(), torch.float32)
        return tokens if len(tokens) else None

    def evaluate(self, batch: Tensor, step: int, beta: float) -> Outcome:
        """The negative ELBO with KL thresholding."""
        return elbo(self.vae, batch, self._recipe, step, beta)


def elbo(vae: TokenVAE, tokens: Tensor, recipe: Recipe, step: int, beta: float) -> Outcome:
    """The negative ELBO of token vectors [T, H], estimated from one sample."""
    # A generator per step: checkpoints need no generator state.
    noise = Generator(tokens.device).manual_seed((recipe.seed << 32) + step)
    with autocast(tokens.device):
        code, reconstruction = vae(tokens, noise)
    kl = vae.kl(code.float())
    loss = negative_elbo(
        tokens, reconstruction.float(), kl, beta, recipe.free_bits, recipe.observation_variance
    )
    return Outcome(loss.total, {"reconstruction": loss.reconstruction, "kl": loss.kl}, code)
