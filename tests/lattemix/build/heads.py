"""Heads with random weights, to build graphs from without training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import Checkpoint, TokenVectors
from lattemix.build.head import Head, HeadSpec, rounded
from model_store.manifest import BackboneOrigin
from tests.conftest import SENTENCES

L, C = 4, 5


def random_head(
    checkpoint: Checkpoint,
    encode: Callable[[Sequence[str]], TokenVectors],
    layer: int,
    depth: int = 1,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    probes: Sequence[str] = SENTENCES,
    **fields: Any,
) -> Head:
    """Return a random head for a layer of a backbone.

    Args:
        checkpoint: the backbone.
        encode: returns the token vectors that the recorded mixtures are computed from.
        layer: the layer that the head reads.
        depth: the number of layers of its encoder.
        tensors: additional tensors.
        probes: sentences with recorded mixtures.
        fields: fields of `HeadSpec` that differ from the defaults below.
    """
    rng = np.random.default_rng(0)
    sample = encode(probes)
    width = sample.vectors.shape[1]
    spec = HeadSpec.model_validate(
        {
            "backbone": BackboneOrigin(
                name=checkpoint.name,
                sha256=checkpoint.sha256,
                architecture=checkpoint.config["model_type"],
                layer=layer,
                hidden_size=width,
            ),
            "latent_dims": L,
            "classes": C,
            "temperature": 0.3,
            "max_tokens": 16,
            "normalisation": "centre-equal-norm",
            "recommended_metric": "cosine",
            "corpus": "none",
            "recipe": {},
            "probes": tuple(probes),
            **fields,
        }
    )
    weights: dict[str, NDArray[Any]] = {"mean": sample.vectors.mean(axis=0), **(tensors or {})}
    for index, size in enumerate([width] * (depth - 1) + [L * C]):
        for name, shape in (("weight", (size, width)), ("bias", (size,))):
            values = rng.normal(0, 0.2, shape).astype(np.float32)
            weights[f"encoder.{index}.{name}"] = rounded(values)
    head = Head(spec, weights)
    recorded = {"centre": head.centre_of(sample), "probes": head.mixtures(sample)}
    return Head(spec, {**weights, **recorded})
