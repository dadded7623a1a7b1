"""Why two sentences are as similar as they are: their score, shared out among tokens and dims.

What a token adds to a score is its share of what the whole sentence adds: each class of a mixture
is made of its tokens' classes, so whatever a class adds belongs to the tokens that are in it, in
proportion.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.engine.encoder import Dissection
from app.engine.tokenization import Piece
from app.similarity import Centre, Mixtures, check, similarity
from model_store import Metric

Floats = NDArray[np.float64]

_TINY = np.finfo(np.float64).tiny
_SAME = 1e-6  # two similarities that differ by less are rounding apart


class Explanation(NamedTuple):
    """A score, and what it is made of: each of the parts adds up to all of it."""

    similarity: float
    a: Floats  # [S], by the tokens of the one
    b: Floats  # [T], by those of the other
    dims: Floats  # [L], by latent dims


class Word(NamedTuple):
    """Neighbouring tokens that are one word."""

    start: int  # characters of the text
    end: int
    tokens: range  # places of its tokens

    def weight(self, text: Dissection) -> float:
        """What part of the text it is; one that the model does not know may be none."""
        return float(text.weights[self.tokens.start : self.tokens.stop].sum())


def explain(
    metric: Metric, a: Dissection, b: Dissection, centre: Centre | None = None
) -> Explanation:
    """Share out the similarity of two sentences."""
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
            whole_x, whole_y = x.sum(axis=0), y.sum(axis=0)  # [L*C], whose product is the score
            of_a, of_b, classes = x @ whole_y, y @ whole_x, whole_x * whole_y
    (score,) = similarity(metric, a.mixture[None], b.mixture[None], centre)
    return Explanation(score, of_a, of_b, classes.reshape(latents, -1).sum(axis=-1))


def _vectors(
    metric: Metric, parts: Floats, weights: NDArray[Any], latents: int, centre: Centre | None
) -> Floats:
    """What each token brings into the vector whose dot product is the metric: [S, L*C]."""
    whole: Floats = parts.sum(axis=0)
    if metric == "cosine":
        return parts / float(np.linalg.norm(whole))
    roots = _ratio(parts, np.sqrt(whole))  # they add up to sqrt(whole)
    if metric == "bhattacharyya":
        roots /= latents**0.5
        return roots
    assert centre is not None
    roots -= weights[:, None] * centre.ravel()
    roots /= max(float(np.linalg.norm(roots.sum(axis=0))), _TINY)
    return roots


def _js(p: Floats, q: Floats, latents: int) -> tuple[Floats, Floats, Floats]:
    # 1 - JS is the sum over the classes of what they have in common: half of
    # P log((P + Q) / P) + Q log((P + Q) / Q).
    whole_p, whole_q = p.sum(axis=0), q.sum(axis=0)
    either = whole_p + whole_q
    common = _surprise(whole_p, either) + _surprise(whole_q, either)
    common /= 2 * latents
    return _ratio(p, whole_p) @ common, _ratio(q, whole_q) @ common, common


def _surprise(part: Floats, whole: Floats) -> Floats:
    """Part * log2(whole / part), and 0 where there is no part."""
    logarithm = np.log2(_ratio(whole, part), out=np.zeros_like(part), where=part > 0)
    return part * logarithm


def _l2(
    p: Floats, q: Floats, weights_p: NDArray[Any], weights_q: NDArray[Any]
) -> tuple[Floats, Floats, Floats]:
    # The distance is how far apart both are along the line between them; so it is shared out by
    # how far along it each token is from the other sentence.
    whole_p, whole_q = p.sum(axis=0), q.sum(axis=0)
    apart = whole_p - whole_q
    along = apart / max(float(np.linalg.norm(apart)), _TINY)
    of_a = weights_p * (whole_q @ along) - p @ along
    of_b = q @ along - weights_q * (whole_p @ along)
    return of_a, of_b, -apart * along


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Their quotient, and 0 where there is nothing to divide by."""
    out = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


def words(pieces: list[Piece]) -> list[Word]:
    """The words of a text; special tokens are in none."""
    numbered = enumerate(pieces)
    return [
        Word(min(p.start for _, p in found), max(p.end for _, p in found), _range(found))
        for word, group in groupby(numbered, key=lambda entry: entry[1].word)
        if word is not None and (found := list(group))
    ]


def _range(found: list[tuple[int, Piece]]) -> range:
    return range(found[0][0], found[-1][0] + 1)


def word_mixtures(text: Dissection, found: list[Word]) -> Mixtures:
    """The mixture of each word, of its tokens': [W, L, C]."""
    shape = (len(found), *text.mixtures.shape[1:])
    mixtures = np.empty(shape, np.float32)
    for place, word in enumerate(found):
        tokens = slice(word.tokens.start, word.tokens.stop)
        weights = text.weights[tokens]
        weighted = weights if weights.any() else None  # the tokens may all weigh nothing
        mixtures[place] = np.average(text.mixtures[tokens], axis=0, weights=weighted)
    return mixtures


def met(
    table: NDArray[np.float32], a: Sequence[float], b: Sequence[float]
) -> list[tuple[int, int]]:
    """Which words meet, if they are so similar [W, X] and weigh so much; those of none do not."""
    rows, columns = np.flatnonzero(a), np.flatnonzero(b)
    return [(int(rows[i]), int(columns[j])) for i, j in links(table[np.ix_(rows, columns)])]


def links(table: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Which words of the one meet which of the other: each is the best match of the other.

    A match is as good as two words are more alike than they are to all the others, on average, or
    a word that is like every other would match them all. Each word is in one link at most; among
    matches that are equally good, those nearest in their place are chosen.
    """
    if not table.size:
        return
    rows, columns = table.shape
    table = table.astype(np.float64)
    if rows > 1:
        table -= table.mean(axis=0)
    if columns > 1:
        table -= table.mean(axis=1, keepdims=True)
    best = (table >= table.max(axis=1, keepdims=True) - _SAME) & (table >= table.max(0) - _SAME)
    found = [(int(i), int(j)) for i, j in np.argwhere(best)]
    free_rows, free_columns = set(range(rows)), set(range(columns))
    for i, j in sorted(found, key=lambda pair: abs(pair[0] / rows - pair[1] / columns)):
        if i in free_rows and j in free_columns:
            free_rows.remove(i)
            free_columns.remove(j)
            yield i, j
