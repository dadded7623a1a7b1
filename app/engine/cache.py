"""Mixtures of recent texts, so that what comes often is computed once."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.tokenization import Side

# What a dictionary entry, its key and what else is known of a text take, about.
_OVERHEAD_BYTES = 400
_AT_ONCE = 64  # texts; then others may have the lock


class Text(NamedTuple):
    """What is known of a text besides its mixture."""

    tokens: int  # in all
    truncated: bool


class _Place(NamedTuple):
    row: int
    text: Text


class Cache:
    """The most recently used texts, in memory that is all taken at the start.

    So it does not let the process grow as it fills, but for some entries of a dictionary.
    Thread-safe.
    """

    def __init__(self, max_bytes: int, latents: int, classes: int) -> None:
        self._entry_bytes = 4 * latents * classes + _OVERHEAD_BYTES
        # Written to, or the system would only promise the memory.
        shape = (max_bytes // self._entry_bytes, latents, classes)
        self._mixtures = np.full(shape, 0, np.float32)  # [rows, L, C]
        self._places: OrderedDict[bytes, _Place] = OrderedDict()  # oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def used_bytes(self) -> int:
        """Memory in use, of that which was taken."""
        return len(self) * self._entry_bytes

    def recall(self, keys: Sequence[bytes], mixtures: NDArray[np.float32]) -> list[Text | None]:
        """Write what is known under these keys into `mixtures` [N, L, C]; say which was."""
        found: list[Text | None] = []
        while len(found) < len(keys):
            with self._lock:
                for key in keys[len(found) : len(found) + _AT_ONCE]:
                    place = self._places.get(key)
                    if place is not None:
                        self._places.move_to_end(key)
                        mixtures[len(found)] = self._mixtures[place.row]
                    found.append(place and place.text)
        return found

    def keep(self, entries: Iterable[tuple[bytes, NDArray[np.float32], Text]]) -> None:
        """Remember mixtures [L, C] instead of the least recently used ones."""
        for key, mixture, text in entries:
            with self._lock:
                if key in self._places or not len(self._mixtures):
                    continue
                row = len(self._places)
                if row == len(self._mixtures):
                    row = self._places.popitem(last=False)[1].row
                self._mixtures[row] = mixture
                self._places[key] = _Place(row, text)


def key_of(text: str, cut: Side) -> bytes:
    """Equal for equal texts only, of the same size for all, and nobody can read the text in it."""
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16, person=cut.encode()).digest()
