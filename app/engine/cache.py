"""LRU cache of mixtures by text."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.settings import Truncate

_OVERHEAD_BYTES = 400  # of an entry besides its mixture: dict entry, key and `TextInfo`, about
_LOOKUPS_PER_LOCK = 64  # so that a large request does not keep others from the cache


class TextInfo(NamedTuple):
    """What a response says about a text besides its mixture."""

    tokens: int  # before truncation
    truncated: bool


class _Entry(NamedTuple):
    row: int
    info: TextInfo


class Cache:
    """Mixtures of the most recently used texts. Thread-safe.

    All mixtures are allocated at the start, so that memory hardly grows as the cache fills.
    """

    def __init__(self, max_bytes: int, latents: int, classes: int) -> None:
        self._entry_bytes = 4 * latents * classes + _OVERHEAD_BYTES
        shape = (max_bytes // self._entry_bytes, latents, classes)
        # Not np.zeros: the system commits memory only when it is written to.
        self._mixtures = np.full(shape, 0, np.float32)  # [rows, L, C]
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        """Memory in use, of `max_bytes`."""
        return len(self) * self._entry_bytes

    def read(self, keys: Sequence[bytes], mixtures: NDArray[np.float32]) -> list[TextInfo | None]:
        """Copy cached mixtures into the rows of `mixtures` [N, L, C]; None marks a miss."""
        infos: list[TextInfo | None] = []
        while len(infos) < len(keys):
            with self._lock:
                for key in keys[len(infos) : len(infos) + _LOOKUPS_PER_LOCK]:
                    entry = self._entries.get(key)
                    if entry is not None:
                        self._entries.move_to_end(key)
                        mixtures[len(infos)] = self._mixtures[entry.row]
                    infos.append(entry and entry.info)
        return infos

    def write(self, entries: Iterable[tuple[bytes, NDArray[np.float32], TextInfo]]) -> None:
        """Add mixtures [L, C], replacing the least recently used ones."""
        for key, mixture, info in entries:
            with self._lock:
                if key in self._entries or not len(self._mixtures):
                    continue
                row = len(self._entries)
                if row == len(self._mixtures):
                    row = self._entries.popitem(last=False)[1].row
                self._mixtures[row] = mixture
                self._entries[key] = _Entry(row, info)


def cache_key(text: str, truncate: Truncate) -> bytes:
    """Hash of a text and how it is truncated; the text cannot be read from it."""
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16, person=truncate.encode()).digest()
