"""Mixtures of recent sentences, so that what comes often is computed once."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

# What a dictionary entry, its key and the array's header take beside their content, about.
_OVERHEAD_BYTES = 400


class Cache:
    """The most recently used mixtures within a number of bytes. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._mixtures: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._mixtures)

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """Return what is kept under this key, which now is the most recently used."""
        mixture = self._mixtures.get(key)
        if mixture is not None:
            self._mixtures.move_to_end(key)
        return mixture

    def put(self, key: bytes, mixture: NDArray[np.float32]) -> None:
        """Keep a mixture, and let go of the least recently used ones that no longer fit."""
        size = _size(key, mixture)
        if key in self._mixtures or size > self.max_bytes:
            return
        self._mixtures[key] = mixture
        self.bytes += size
        while self.bytes > self.max_bytes:
            self.bytes -= _size(*self._mixtures.popitem(last=False))


def _size(key: bytes, mixture: NDArray[np.float32]) -> int:
    return len(key) + mixture.nbytes + _OVERHEAD_BYTES
