"""Score breakdown: how much each token, word and latent dim contributes to a similarity.

A class of a sentence's mixture is a weighted sum over its tokens, so the class's contribution to
the score is split among the tokens in proportion.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.encodings import TokenEncoding
from lattemix.ranking import order
from lattemix.similarity import Centre, Mixtures, check, matrix, similarity
from lattemix.tokenization import TokenSpan
from model_store import Metric
from model_store.latents import Latents

Floats = NDArray[np.float64]

_TINY = np.finfo(np.float64).tiny
_TIE = 1e-6  # similarities that differ by less are equal up to rounding
_WORDS_PER_CLASS = 5


class Breakdown(NamedTuple):
    """A score and its contributions; each array sums to the score."""

    similarity: float
    a: Floats  # [S], per token of the first sentence
    b: Floats  # [T], per token of the second sentence
    dims: Floats  # [L], per latent dim


class Word(NamedTuple):
    """Adjacent tokens that form one word."""

    start: int  # character offset
    end: int
    tokens: range  # indices of its tokens

    def weight(self, text: TokenEncoding) -> float:
        """Its share of the text's mixture; an unknown word may have none."""
        return float(text.weights[self.tokens.start : self.tokens.stop].sum())


def explain(
    metric: Metric,
    texts: tuple[str, str],
    encodings: tuple[TokenEncoding, TokenEncoding],
    centre: Centre | None = None,
    latents: Latents | None = None,
    top_dims: int = 5,
    token_alignment: bool = True,
    token_mixtures: bool = False,
) -> dict[str, Any]:
    """Return the content of an `Explanation`, all but the model's name.

    Args:
        metric: the similarity to explain.
        texts: the two sentences.
        encodings: their token encodings.
        centre: the model's centre, which the metric `centred` needs.
        latents: words typical of each latent class, if known.
        top_dims: number of latent dims listed as agreeing and as disagreeing.
        token_alignment: whether to include similarities between tokens.
        token_mixtures: whether to include the mixtures of all tokens.
    """
    a, b = encodings
    scores = breakdown(metric, a, b, centre)
    words_a, words_b = words(a.spans), words(b.spans)
    word_table = matrix(metric, word_mixtures(a, words_a), word_mixtures(b, words_b), centre)
    weights = [word.weight(a) for word in words_a], [word.weight(b) for word in words_b]
    links = [
        {"a": i, "b": j, "similarity": word_table[i, j]}
        for i, j in word_links(word_table, *weights)
    ]
    alignment = {"words": word_table, "links": links}  # [W, X]
    if token_alignment:
        alignment["tokens"] = matrix(metric, a.mixtures, b.mixtures, centre)  # [S, T]
    return {
        "metric": metric,
        "similarity": np.float32(scores.similarity),
        "tokens": (a.tokens, b.tokens),
        "truncated": (a.truncated, b.truncated),
        "a": _sentence(texts[0], a, scores.a, words_a, token_mixtures),
        "b": _sentence(texts[1], b, scores.b, words_b, token_mixtures),
        "alignment": alignment,
        "latents": _latent_contributions(scores.dims, a.mixture, b.mixture, top_dims, latents),
    }


def _sentence(
    text: str, encoding: TokenEncoding, contributions: Floats, found: list[Word], mixtures: bool
) -> dict[str, Any]:
    """Return the content of a `SentenceExplanation`."""
    rounded = contributions.astype(np.float32)
    word_of = {token: index for index, word in enumerate(found) for token in word.tokens}
    sentence: dict[str, Any] = {
        "tokens": [
            {
                **{name: getattr(span, name) for name in ("token", "start", "end", "special")},
                "word": word_of.get(index),
                "weight": encoding.weights[index],
                "contribution": rounded[index],
            }
            for index, span in enumerate(encoding.spans)
        ],
        "words": [
            {
                "text": text[word.start : word.end],
                "start": word.start,
                "end": word.end,
                "tokens": list(word.tokens),
                "contribution": np.float32(contributions[list(word.tokens)].sum()),
            }
            for word in found
        ],
    }
    if mixtures:
        sentence["mixtures"] = b64encode(encoding.mixtures.astype("<f4").tobytes()).decode()
    return sentence


def _latent_contributions(
    contributions: Floats, a: Mixtures, b: Mixtures, count: int, latents: Latents | None
) -> dict[str, Any]:
    """Return the content of `LatentContributions`."""

    def dominant_class(mixture: Mixtures, dim: int) -> dict[str, Any]:
        index = int(mixture[dim].argmax())
        described: dict[str, Any] = {"index": index, "share": mixture[dim, index]}
        if latents is not None:
            described["words"] = list(latents[dim][index].words)[:_WORDS_PER_CLASS]
        return described

    def contribution(dim: int) -> dict[str, Any]:
        return {
            "dim": dim,
            "contribution": np.float32(contributions[dim]),
            "a": dominant_class(a, dim),
            "b": dominant_class(b, dim),
        }

    dims = order(contributions).tolist()
    return {
        "agree": [contribution(dim) for dim in dims[:count]],
        "disagree": [contribution(dim) for dim in dims[::-1][:count]],
    }


def breakdown(
    metric: Metric, a: TokenEncoding, b: TokenEncoding, centre: Centre | None = None
) -> Breakdown:
    """Split the similarity of two sentences into contributions."""
    check(metric, centre)
    p, q = a.parts, b.parts  # [S, L*C], [T, L*C]
    latents = a.mixtures.shape[1]
    match metric:
        case "js":
            of_a, of_b, classes = _js(p, q, latents)
        case "l2":
            of_a, of_b, classes = _l2(p, q, a.weights, b.weights)
        case _:
            x = _vectors(metric, p, a.weights, latents, centre)
            y = _vectors(metric, q, b.weights, latents, centre)
            sum_x, sum_y = x.sum(axis=0), y.sum(axis=0)  # [L*C]; their dot product is the score
            of_a, of_b, classes = x @ sum_y, y @ sum_x, sum_x * sum_y
    (score,) = similarity(metric, a.mixture[None], b.mixture[None], centre)
    return Breakdown(score, of_a, of_b, classes.reshape(latents, -1).sum(axis=-1))


def _vectors(
    metric: Metric, parts: Floats, weights: NDArray[Any], latents: int, centre: Centre | None
) -> Floats:
    """Split the sentence vector whose dot product is the metric among the tokens: [S, L*C]."""
    mixture: Floats = parts.sum(axis=0)
    if metric == "cosine":
        return parts / float(np.linalg.norm(mixture))
    roots = _ratio(parts, np.sqrt(mixture))  # they sum to sqrt(mixture)
    if metric == "bhattacharyya":
        roots /= latents**0.5
        return roots
    assert centre is not None
    roots -= weights[:, None] * centre.ravel()
    roots /= max(float(np.linalg.norm(roots.sum(axis=0))), _TINY)
    return roots


def _js(p: Floats, q: Floats, latents: int) -> tuple[Floats, Floats, Floats]:
    # 1 - JS is a sum over classes of half of P log((P + Q) / P) + Q log((P + Q) / Q).
    sum_p, sum_q = p.sum(axis=0), q.sum(axis=0)
    either = sum_p + sum_q
    common = _surprise(sum_p, either) + _surprise(sum_q, either)
    common /= 2 * latents
    return _ratio(p, sum_p) @ common, _ratio(q, sum_q) @ common, common


def _surprise(part: Floats, whole: Floats) -> Floats:
    """Part * log2(whole / part), and 0 where part is 0."""
    logarithm = np.log2(_ratio(whole, part), out=np.zeros_like(part), where=part > 0)
    return part * logarithm


def _l2(
    p: Floats, q: Floats, weights_p: NDArray[Any], weights_q: NDArray[Any]
) -> tuple[Floats, Floats, Floats]:
    # Each token's distance to the other sentence along the line between the two mixtures.
    sum_p, sum_q = p.sum(axis=0), q.sum(axis=0)
    difference = sum_p - sum_q
    direction = difference / max(float(np.linalg.norm(difference)), _TINY)
    of_a = weights_p * (sum_q @ direction) - p @ direction
    of_b = q @ direction - weights_q * (sum_p @ direction)
    return of_a, of_b, -difference * direction


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide, with 0 where the denominator is 0."""
    out = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


def words(spans: list[TokenSpan]) -> list[Word]:
    """Group tokens into words; special tokens belong to none."""
    groups = groupby(enumerate(spans), key=lambda entry: entry[1].word)
    return [_word(list(group)) for word, group in groups if word is not None]


def _word(tokens: list[tuple[int, TokenSpan]]) -> Word:
    return Word(
        start=min(span.start for _, span in tokens),
        end=max(span.end for _, span in tokens),
        tokens=range(tokens[0][0], tokens[-1][0] + 1),
    )


def word_mixtures(text: TokenEncoding, found: list[Word]) -> Mixtures:
    """Average the tokens' mixtures within each word, by weight: [W, L, C]."""
    mixtures = np.empty((len(found), *text.mixtures.shape[1:]), np.float32)
    for index, word in enumerate(found):
        tokens = slice(word.tokens.start, word.tokens.stop)
        weights = text.weights[tokens]
        nonzero = weights if weights.any() else None
        mixtures[index] = np.average(text.mixtures[tokens], axis=0, weights=nonzero)
    return mixtures


def word_links(
    table: NDArray[np.float32], a: Sequence[float], b: Sequence[float]
) -> list[tuple[int, int]]:
    """Mutual best matches between words, given similarities [W, X] and weights.

    Words of weight 0 have no match.
    """
    rows, columns = np.flatnonzero(a), np.flatnonzero(b)
    return [(int(rows[i]), int(columns[j])) for i, j in links(table[np.ix_(rows, columns)])]


def links(table: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Yield row and column of the cells that are largest in both, at most one per row and column.

    Row and column means are subtracted first: a word similar to all others matches none better.
    Among ties, the words closest in relative position match.
    """
    if not table.size:
        return
    rows, columns = table.shape
    table = table.astype(np.float64)
    if rows > 1:
        table -= table.mean(axis=0)
    if columns > 1:
        table -= table.mean(axis=1, keepdims=True)
    best = (table >= table.max(axis=1, keepdims=True) - _TIE) & (table >= table.max(0) - _TIE)
    matches = [(int(i), int(j)) for i, j in np.argwhere(best)]
    free_rows, free_columns = set(range(rows)), set(range(columns))
    for i, j in sorted(matches, key=lambda pair: abs(pair[0] / rows - pair[1] / columns)):
        if i in free_rows and j in free_columns:
            free_rows.remove(i)
            free_columns.remove(j)
            yield i, j
