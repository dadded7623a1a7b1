"""Sentences that must not be trained on, such as those of evaluation sets."""

import hashlib
import re
from collections.abc import Iterable
from functools import cached_property

_WORD = re.compile(r"\w+")


class Exclusion:
    """A set of sentences, compared without case, punctuation and white space."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._keys = frozenset(map(_key, sentences)) - {""}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, sentence: str) -> bool:
        return _key(sentence) in self._keys

    @cached_property
    def sha256(self) -> str:
        """Digest of the set; the order of the sentences does not matter."""
        return hashlib.sha256("\n".join(sorted(self._keys)).encode()).hexdigest()


def _key(sentence: str) -> str:
    return " ".join(_WORD.findall(sentence.lower()))
