"""The negative evidence lower bound, with KL thresholding."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """The objective and its parts, each averaged over the batch's tokens, in nats."""

    total: Tensor
    reconstruction: Tensor
    kl: Tensor  # summed over latent dims, before the threshold


def negative_elbo(
    tokens: Tensor, reconstruction: Tensor, logits: Tensor, beta: float, free_bits: float
) -> Loss:
    """Reconstruction + beta * KL(q || uniform), with `free_bits` nats per dim left unpunished.

    Args:
        tokens: what was to be reconstructed, [T, H].
        reconstruction: the decoder's mean of a unit-variance Gaussian, [T, H].
        logits: of q(z|u), [T, L, C].
        beta: weight of the KL term.
        free_bits: the threshold below which a latent dim's KL costs nothing more.
    """
    squared_error = 0.5 * (tokens - reconstruction).square().sum(dim=-1).mean()
    kl = kl_to_uniform(logits).mean(dim=0)  # [L]
    punished = kl.clamp(min=free_bits).sum()
    return Loss(squared_error + beta * punished, squared_error.detach(), kl.sum().detach())


def kl_to_uniform(logits: Tensor) -> Tensor:
    """KL(q || uniform) of each latent dim: log C - H(q), [T, L, C] -> [T, L]."""
    log_q = torch.log_softmax(logits, dim=-1)
    return math.log(logits.shape[-1]) + (log_q.exp() * log_q).sum(dim=-1)
