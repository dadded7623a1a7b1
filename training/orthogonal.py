"""Orthogonal encoders: mixtures that start from mean pooling instead of competing with it.

The weight [L*C, H] has orthonormal columns, up to one scale, and zero mean over the classes of each
latent dim; there is no bias. Softmax is linear for small logits, so at a high temperature
sqrt(mixture) minus the uniform distribution's sqrt(1/C) is an orthogonal map of the mean token
vector: `centred` becomes the cosine of mean pooling. A lower temperature adds higher moments.
"""

import math

import numpy as np
import torch
from torch import Tensor

from lattemix.build.head import Floats
from model_store import LatteMixError


def orthogonal_encoder(weight: Tensor, latent_dims: int) -> Tensor:
    """The orthogonal encoder nearest to a weight [L*C, H] of full rank.

    It is scaled to the mean square of torch's initialisation of a linear layer, 1 / 3H.
    """
    outputs, hidden_size = weight.shape
    logits = weight.double().unflatten(0, (latent_dims, -1))  # [L, C, H]
    logits = (logits - logits.mean(dim=1, keepdim=True)).flatten(0, 1)  # [L*C, H]
    values, vectors = torch.linalg.eigh(logits.T @ logits)
    inverse_root = vectors @ (values.rsqrt()[:, None] * vectors.T)  # [H, H]
    scale = math.sqrt(outputs / (3 * hidden_size))
    return (scale * logits @ inverse_root).to(weight.dtype)


def uniform_centre(latent_dims: int, classes: int) -> Floats:
    """The centre of an orthogonal encoder, sqrt of the uniform distribution: [L, C]."""
    return np.full((latent_dims, classes), classes**-0.5, np.float32)


def check_orthogonal(hidden_size: int, latent_dims: int, classes: int) -> None:
    """Reject a latent shape with too few dimensions for orthonormal columns."""
    if latent_dims * (classes - 1) < hidden_size:
        raise LatteMixError(
            f"An orthogonal encoder of {hidden_size}-wide tokens needs latent_dims x (classes - 1) "
            f"of at least {hidden_size}; {latent_dims} x {classes - 1} is less."
        )
