"""Vectors in fewer bytes: float16, int8 or one bit per number."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lattemix.errors import DTypeError
from model_store import Metric

DType = Literal["float32", "float16", "int8", "binary"]


def check_dtype(dtype: DType, metric: Metric) -> None:
    """Raise `DTypeError` if the type is unknown or the metric's vectors cannot be stored in it."""
    if dtype not in get_args(DType):
        choices = ", ".join(get_args(DType))
        raise DTypeError(f"Unknown dtype {dtype!r}: choose among {choices}.")
    if dtype == "binary" and metric != "centred":
        raise DTypeError(
            f"dtype 'binary' stores signs, and vectors of {metric!r} have no negative numbers: "
            "use the metric 'centred'."
        )


def quantize(vectors: NDArray[np.floating[Any]], dtype: DType) -> NDArray[Any]:
    """Convert unit vectors [N, D].

    - float32, float16: rounded, [N, D].
    - int8: each vector is scaled so that its largest absolute value is 127, [N, D]. Compare by
      cosine, which does not depend on the scale.
    - binary: one bit per number, 1 if it is positive, eight to a byte, the first in the highest
      bit: uint8 [N, ceil(D / 8)], padded with 0. Compare by Hamming distance.
    """
    match dtype:
        case "int8":
            largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)  # [N, 1]
            scaled = vectors * (127 / np.where(largest > 0, largest, 1))
            return np.rint(scaled).astype(np.int8)
        case "binary":
            return np.packbits(vectors > 0, axis=1)
        case _:
            return vectors.astype(dtype)
