"""Argument checks shared by `Model` and the clients."""

from collections.abc import Iterable

from model_store import LatteMixError

Pair = tuple[str, str]


def as_texts(texts: Iterable[str]) -> list[str]:
    """Return a list of strings, or raise `LatteMixError` for the first item that is not one."""
    found = list(texts)
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise LatteMixError(f"texts[{index}] is {type(text).__name__}, not a string.")
    return found


def as_pairs(a: str | Iterable[Pair], b: str | None) -> tuple[list[Pair], bool]:
    """Return the pairs, and whether they are the two sentences `a` and `b`."""
    if isinstance(a, str) and isinstance(b, str):
        return [(a, b)], True
    if isinstance(a, str) or b is not None:
        raise LatteMixError("similarity takes two sentences, or a list of pairs.")
    pairs = [tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in a]
    for index, pair in enumerate(pairs):
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise LatteMixError(f"pairs[{index}] is not a pair of strings.")
    return [(first, second) for first, second in pairs], False


def check_top_k(top_k: int | None) -> None:
    """Raise `LatteMixError` for a `top_k` below 1."""
    if top_k is not None and top_k < 1:
        raise LatteMixError(f"top_k is {top_k}: it should be at least 1, or None for all.")
