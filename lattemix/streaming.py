"""Results row by row, for any number of texts; a text that cannot be encoded is rejected alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lattemix.arguments import Pair, iter_pairs, iter_texts
from lattemix.calibrated import calibrated
from lattemix.encoder import Encoder
from lattemix.encodings import Encoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.responses import EncodedText, PairSimilarity, RankResult, Rejection
from lattemix.settings import Truncate
from lattemix.similarity import Mixtures, matrix, similarity
from model_store import Metric

T = TypeVar("T")
Scores = NDArray[np.float32]  # [N]

# Rows encoded together. Fixed: the batching of texts can change the last digit, and results must
# not depend on the machine.
_CHUNK = 4096


def encoded_texts(
    encoder: Encoder, texts: Iterable[str], truncate: Truncate, name: str = "text"
) -> Iterator[EncodedText | Rejection]:
    """Yield the mixture of each text; `name` is what a `Rejection` calls it."""

    def rows(encoding: Encoding) -> Iterator[EncodedText]:
        columns = (encoding.mixtures, encoding.tokens, encoding.truncated)
        return (EncodedText(*row) for row in zip(*columns, strict=True))

    return _rows(encoder, ((text,) for text in iter_texts(texts)), truncate, (name,), rows)


def pair_similarities(
    encoder: Encoder,
    pairs: Iterable[Pair],
    metrics: Sequence[Metric],
    truncate: Truncate,
    names: tuple[str, str] = ("a", "b"),
) -> Iterator[PairSimilarity | Rejection]:
    """Yield the similarities of each pair; `names` are what a `Rejection` calls its texts."""

    def rows(encoding: Encoding) -> Iterator[PairSimilarity]:
        left, right = encoding.mixtures[::2], encoding.mixtures[1::2]
        scores: dict[str, Scores] = {
            metric: similarity(metric, left, right, encoder.centre).astype(np.float32)
            for metric in metrics
        }
        columns = {**scores, **calibrated(encoder.calibration, scores)}
        for index, values in enumerate(zip(*map(np.ndarray.tolist, columns.values()), strict=True)):
            truncated = encoding.truncated[2 * index : 2 * index + 2]
            yield PairSimilarity(truncated=truncated, **dict(zip(columns, values, strict=True)))

    return _rows(encoder, iter_pairs(pairs), truncate, names, rows)


def query_similarities(
    encoder: Encoder, query: Mixtures, texts: Iterable[str], metric: Metric, truncate: Truncate
) -> Iterator[RankResult | Rejection]:
    """Yield the similarity of each text to the query's mixture [1, L, C], in order."""

    def rows(encoding: Encoding) -> Iterator[RankResult]:
        scores = matrix(metric, query, encoding.mixtures, encoder.centre)[0]
        columns = {"score": scores, **calibrated(encoder.calibration, {metric: scores})}
        for truncated, *values in zip(encoding.truncated, *columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            yield RankResult(index=0, truncated=truncated, **row)

    items = ((text,) for text in iter_texts(texts))
    for index, row in enumerate(_rows(encoder, items, truncate, ("text",), rows)):
        position = {"index": index}
        yield row if isinstance(row, Rejection) else row.model_copy(update=position)


def _rows(
    encoder: Encoder,
    items: Iterable[tuple[str, ...]],
    truncate: Truncate,
    names: tuple[str, ...],
    rows: Callable[[Encoding], Iterator[T]],
) -> Iterator[T | Rejection]:
    """Encode items in chunks and yield a row for each, or a `Rejection`."""
    iterator, position = iter(items), 0
    while chunk := [*islice(iterator, _CHUNK)]:
        problems, encoding = _encode(encoder, chunk, truncate)
        results = rows(encoding)
        for item in chunk:
            reasons = (
                f"{name} {problems[text]}."
                for name, text in zip(names, item, strict=True)
                if text in problems
            )
            reason = next(reasons, None)
            yield next(results) if reason is None else Rejection(position, reason)
            position += 1


def _encode(
    encoder: Encoder, items: Sequence[tuple[str, ...]], truncate: Truncate
) -> tuple[dict[str, str], Encoding]:
    """Return the problem of every invalid text, and the encoding of the items without any."""
    problems = {
        text: "holds a lone surrogate, which is not valid Unicode"
        for item in items
        for text in item
        if not _is_unicode(text)
    }
    while True:  # each error names all texts of its kind
        texts = _texts(items, problems)
        try:
            return problems, encoder.encode(texts, truncate)
        except EmptyTextError as error:
            problems |= {texts[index]: error.reason for index in (error.index, *error.others)}
        except TooLongError as error:
            problems |= {texts[index]: reason for index, reason in error.reasons.items()}


def _texts(items: Sequence[tuple[str, ...]], problems: dict[str, str]) -> list[str]:
    return [text for item in items if problems.keys().isdisjoint(item) for text in item]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
