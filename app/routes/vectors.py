"""Vectors of sentences, as the options of a request describe them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine import ServedModel
from app.schemas.embed import VectorOptions
from lattemix.encodings import Encoding
from lattemix.quantization import DType, check_dtype, quantize
from lattemix.similarity import prefix_dims, vectors
from model_store import Metric


@dataclass(frozen=True)
class VectorFormat:
    """Turns mixtures into vectors."""

    model: ServedModel
    metric: Metric
    dims: int  # latent dims
    dtype: DType

    @classmethod
    def of(cls, model: ServedModel, options: VectorOptions) -> "VectorFormat":
        """Return the format that a request asks for; raise if the model does not support it."""
        manifest, metric = model.manifest, model.metric(options.metric)
        dims = prefix_dims(options.dimensions, manifest.latent_dims, manifest.classes)
        check_dtype(options.dtype, metric)
        return cls(model, metric, dims, options.dtype)

    def __call__(self, mixtures: NDArray[np.float32]) -> NDArray[Any]:
        """Return the vectors [N, D] of mixtures [N, L, C]."""
        rows = vectors(self.metric, mixtures, self.model.centre, self.dims)
        return quantize(rows.astype(np.float32), self.dtype)


def usage(model: ServedModel, encoding: Encoding) -> dict[str, int]:
    """Return the number of tokens read, as OpenAI counts them."""
    limit = model.manifest.max_tokens or 0
    counts = zip(encoding.tokens, encoding.truncated, strict=True)
    tokens = sum(limit if truncated else count for count, truncated in counts)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
