"""Argument checks and the truncation warning, shared by `Model` and the clients."""

import warnings
from collections.abc import Iterable, Iterator, Sequence

from model_store import LatteMixError, Metric

Pair = tuple[str, str]


class TruncationWarning(UserWarning):
    """Texts longer than the model's maximum length were truncated."""


def warn_truncated(truncated: Sequence[bool], limit: int | None, stacklevel: int = 3) -> None:
    """Warn the caller of the calling method if any of its texts were truncated."""
    if any(truncated):
        message = (
            f"{sum(truncated):,} of {len(truncated):,} texts have more than {limit} tokens and "
            "were truncated; pass truncate=False to raise an error instead."
        )
        warnings.warn(message, TruncationWarning, stacklevel=stacklevel)


def as_texts(texts: str | Iterable[str]) -> list[str]:
    """Return a list of strings; a single string becomes a list of one."""
    return [texts] if isinstance(texts, str) else list(iter_texts(texts))


def iter_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts; raise `LatteMixError` for the first item that is not a string."""
    if isinstance(texts, str):
        raise LatteMixError("texts is a string: pass a list of strings.")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise LatteMixError(f"texts[{index}] is {type(text).__name__}, not a string.")
        yield text


def as_pairs(a: str | Iterable[Pair], b: str | None) -> list[Pair]:
    """Return a list of pairs; the two sentences `a` and `b` become a list of one."""
    if isinstance(a, str) and isinstance(b, str):
        return [(a, b)]
    if isinstance(a, str) or b is not None:
        raise LatteMixError("similarity takes two sentences, or a list of pairs.")
    return list(iter_pairs(a))


def iter_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs; raise `LatteMixError` for the first item that is not a pair of strings."""
    for index, pair in enumerate(pairs):
        texts = pair if isinstance(pair, list | tuple) else ()
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise LatteMixError(f"pairs[{index}] is not a pair of strings.")
        yield texts[0], texts[1]


def as_metrics(
    metric: Metric | None, metrics: Sequence[Metric] | None, recommended: Metric
) -> list[Metric]:
    """Return the requested metrics; the recommended one if there are none."""
    if metric is not None and metrics is not None:
        raise LatteMixError("similarity takes metric or metrics, not both.")
    if metrics is not None and not metrics:
        raise LatteMixError("metrics is empty: name at least one, or leave it out.")
    return [metric or recommended] if metrics is None else list(metrics)


def check_top_k(top_k: int | None) -> None:
    """Raise `LatteMixError` for a `top_k` below 1."""
    if top_k is not None and top_k < 1:
        raise LatteMixError(f"top_k is {top_k}: it should be at least 1, or None for all.")
