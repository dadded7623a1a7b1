"""How alike each way of aggregating tokens finds the sentences of each pair."""

from collections.abc import Callable
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, Head, rounded
from lattemix.similarity import similarity
from model_store import Metric
from training.evaluate.statistics import Scores

METRICS: tuple[Metric, ...] = get_args(Metric)

_CHUNK = 256  # pairs compared at once: their mixtures stay in the processor's cache

Index = NDArray[np.intp]  # [N], the place of a pair's sentence among the distinct ones


def head_scores(head: Head, tokens: TokenVectors, left: Index, right: Index) -> dict[str, Scores]:
    """Every metric that the head's kind of model has, between sentences `left` and `right`."""
    if head.spec.model == "categorical":
        return mixture_scores(head.mixtures(tokens), left, right, head.tensors.get("centre"))
    coded = _coded(head, tokens)
    if head.spec.model == "autoencoder":
        return {"cosine": _cosine(_means(coded), left, right)}
    return {"l2": gaussian_mixture_l2([*coded], left, right)}


def mixture_scores(
    mixtures: Floats, left: Index, right: Index, centre: Floats | None
) -> dict[str, Scores]:
    """Every metric between mixtures [S, L, C], however they were made."""
    metrics = [metric for metric in METRICS if metric != "centred" or centre is not None]
    known = np.isfinite(mixtures[:, 0, 0])  # [S]
    usable = np.flatnonzero(known[left] & known[right])
    scores = {metric: np.full(len(left), np.nan) for metric in metrics}
    for start in range(0, len(usable), _CHUNK):
        part = usable[start : start + _CHUNK]
        a, b = mixtures[left[part]], mixtures[right[part]]
        for metric in metrics:
            scores[metric][part] = similarity(metric, a, b, centre)
    return {metric: without_gaps(found) for metric, found in scores.items()}


def without_gaps(scores: Scores) -> Scores:
    """A sentence of which the model knows no word is like no other: the least score found."""
    least = 0.0 if np.isnan(scores).all() else np.nanmin(scores)
    return np.where(np.isnan(scores), least, scores)


def pooling_scores(
    tokens: TokenVectors, left: Index, right: Index, static: bool, head: Head | None = None
) -> dict[str, Scores]:
    """Cosine after the usual poolings.

    With a head, after subtracting its token mean as well; and where it weighs tokens, after taking
    the means with its weights.
    """
    means = _means(tokens)
    scores = {
        "mean": _cosine(means, left, right),
        "max": _cosine(_each(tokens, lambda v: v.max(axis=0)), left, right),
    }
    if not static:
        scores["cls"] = _cosine(_each(tokens, lambda v: v[0]), left, right)
    if head is not None:
        centre = head.tensors["mean"]
        scores["centred mean"] = _cosine(means - centre, left, right)
        if head.spec.token_weighting != "uniform":
            weighted = _means(tokens, head.weights(tokens))
            scores["weighted mean"] = _cosine(weighted, left, right)
            scores["weighted centred mean"] = _cosine(weighted - centre, left, right)
    return scores


def _means(tokens: TokenVectors, weights: Floats | None = None) -> Floats:
    """Mean vector of each sentence, by weight: [S, H]; zeros where nothing weighs anything."""
    weights = np.ones(len(tokens.ids), np.float32) if weights is None else weights
    weighted = TokenVectors(
        tokens.vectors.astype(np.float32) * weights[:, None], tokens.ids, tokens.lengths
    )
    totals = np.bincount(tokens.sentence_of, weights, len(tokens)).astype(np.float32)
    sums = _each(weighted, lambda v: v.sum(axis=0))
    return (sums / np.maximum(totals, 1e-9)[:, None]).astype(np.float32)


def _each(tokens: TokenVectors, pool: Callable[[Floats], Floats]) -> Floats:
    nothing = np.zeros(tokens.vectors.shape[1], np.float32)
    return np.stack([pool(v.astype(np.float32)) if len(v) else nothing for v in tokens])


def _cosine(vectors: Floats, left: Index, right: Index) -> Scores:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.maximum(norms, 1e-12)).astype(np.float64)
    scores: Scores = (unit[left] * unit[right]).sum(axis=1)
    return scores


def _coded(head: Head, tokens: TokenVectors) -> TokenVectors:
    codes = head.codes(tokens.vectors.astype(np.float32))  # [T, L, *]
    return TokenVectors(codes.reshape(len(codes), -1), tokens.ids, tokens.lengths)


def gaussian_mixture_l2(codes: list[Floats], left: Index, right: Index) -> Scores:
    """Minus the L2 distance between the densities of two sentences under a Normal VAE, exactly.

    A token's code [2L] holds the mean and log variance of each latent dim; a sentence's density in
    a dim is the average of its tokens'. The squared distances are averaged over the dims: the
    density of all dims at once underflows.
    """
    means = [code.reshape(len(code), -1, 2)[..., 0] for code in codes]  # [T, L] each
    variances = [np.exp(code.reshape(len(code), -1, 2)[..., 1]) for code in codes]

    def overlap(i: int, j: int) -> Floats:
        """The integral of the product of two densities, per dim: [L]."""
        if not len(means[i]) or not len(means[j]):
            return np.full(codes[i].shape[1] // 2, np.nan, np.float32)
        variance = variances[i][:, None] + variances[j]  # [T, T', L]
        distance = means[i][:, None] - means[j]
        density = np.exp(-(distance**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        return density.mean(axis=(0, 1))

    own = np.stack([overlap(i, i) for i in range(len(codes))])  # [S, L]
    shared = np.stack([overlap(i, j) for i, j in zip(left, right, strict=True)])  # [N, L]
    squared = (own[left] + own[right] - 2 * shared).clip(min=0).mean(axis=1)
    return without_gaps(-np.sqrt(squared, dtype=np.float64))


def random_control(head: Head, seed: int = 0, learned_weights: bool = True) -> Head:
    """The same head with an encoder nobody trained, initialised as torch would, and no centre.

    Without `learned_weights`, what was learned of the tokens' weights is forgotten as well.
    """
    rng = np.random.default_rng(seed)
    forgotten = ("centre",) if learned_weights else ("centre", "weigher.")
    tensors = {name: t for name, t in head.tensors.items() if not name.startswith(forgotten)}
    for index, (weight, bias) in enumerate(head.encoder):
        bound = 1 / np.sqrt(weight.shape[1])
        for kind, like in (("weight", weight), ("bias", bias)):
            values = rng.uniform(-bound, bound, like.shape).astype(np.float32)
            tensors[f"encoder.{index}.{kind}"] = rounded(values)
    return Head(head.spec, tensors)
