"""The negative evidence lower bound, with KL thresholding."""

from typing import NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """The objective and its parts, each averaged over the batch's tokens, in nats."""

    total: Tensor
    reconstruction: Tensor
    kl: Tensor  # summed over latent dims, before the threshold


def negative_elbo(
    tokens: Tensor, reconstruction: Tensor, kl: Tensor, beta: float, free_bits: float
) -> Loss:
    """Reconstruction + beta * KL, with `free_bits` nats of each latent dim left unpunished.

    Args:
        tokens: what was to be reconstructed, [T, H].
        reconstruction: the decoder's mean of a unit-variance Gaussian, [T, H].
        kl: of q(z|u) from the prior, for each latent dim, [T, L].
        beta: weight of the KL term.
        free_bits: the threshold below which a latent dim's KL costs nothing more.
    """
    squared_error = 0.5 * (tokens - reconstruction).square().sum(dim=-1).mean()
    per_dim = kl.mean(dim=0)  # [L]
    punished = per_dim.clamp(min=free_bits).sum()
    return Loss(squared_error + beta * punished, squared_error.detach(), per_dim.sum().detach())
