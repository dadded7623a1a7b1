"""Unit vectors in smaller number types, for vector databases."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

DType = Literal["float32", "float16", "int8", "binary"]


def quantize(vectors: NDArray[np.floating[Any]], dtype: DType) -> NDArray[Any]:
    """Return vectors [N, D] in another number type.

    `int8` scales each vector so that its largest number becomes 127: cosines stay about the same.
    `binary` packs the signs of eight numbers into a byte, [N, ceil(D / 8)] uint8: the Hamming
    distance grows with the angle, if the numbers are centred around 0.
    """
    if dtype == "binary":
        return np.packbits(vectors > 0, axis=1)
    if dtype == "int8":
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        return np.rint(vectors * (127 / np.maximum(largest, np.finfo(np.float32).tiny))).astype(
            "i1"
        )
    return vectors.astype(dtype)
