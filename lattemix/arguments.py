"""Argument checks and the truncation warning, shared by `Model`, the clients and the service."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from lattemix.settings import Truncate
from model_store import LatteMixError, Metric

Pair = tuple[str, str]
TruncateOption = Truncate | bool | None


class TruncationWarning(UserWarning):
    """Texts longer than the model's maximum length were truncated."""


def warn_truncated(truncated: Sequence[bool], limit: int | None, stacklevel: int = 3) -> None:
    """Warn the caller of the calling method if any of its texts were truncated."""
    if any(truncated):
        message = (
            f"{sum(truncated):,} of {len(truncated):,} texts have more than {limit} tokens and "
            'were truncated; pass truncate="window" to read them whole.'
        )
        warnings.warn(message, TruncationWarning, stacklevel=stacklevel)


def as_truncate(option: TruncateOption, default: Truncate) -> Truncate:
    """Return how to handle long texts.

    None is the default; True is the default too, but "right" if that is "error"; False is "error".
    """
    if option is None:
        return default
    if isinstance(option, bool):
        return "error" if not option else "right" if default == "error" else default
    if option not in get_args(Truncate):
        known = ", ".join(get_args(Truncate))
        raise LatteMixError(f"truncate is {option!r}: choose among {known}.")
    return option


def as_explain_truncate(option: TruncateOption, default: Truncate) -> Truncate:
    """Like `as_truncate`, for an explanation, which needs all tokens in one window."""
    if option == "window":
        raise LatteMixError(
            'truncate is "window": an explanation needs all tokens in one window; choose "right", '
            '"left" or "error".'
        )
    truncate = as_truncate(option, default)
    return "right" if truncate == "window" else truncate


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
