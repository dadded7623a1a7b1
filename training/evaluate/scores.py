"""Similarity scores of sentence pairs: poolings of token vectors, and heads."""

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, Head, rounded
from lattemix.similarity import similarity
from model_store import Metric
from training.backbones import Backbone
from training.cache import VectorCache
from training.corpus import SHARD_SENTENCES
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores
from training.orthogonal import orthogonal_encoder

_CHUNK = 256  # pairs compared at once: their mixtures stay in the processor's cache

Index = NDArray[np.intp]  # [N], index of a pair's sentence among the distinct sentences


def encode(backbone: Backbone, cache: VectorCache, sentences: Sequence[str]) -> TokenVectors:
    """Token vectors of sentences, through the cache, without ignored ones."""
    shards = [cache.encode(backbone, shard) for shard in in_shards(sentences)]
    return TokenVectors.join(shards).without(backbone.checkpoint.ignored_ids)


def in_shards(sentences: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split sentences into the lists that are cached together."""
    starts = range(0, len(sentences), SHARD_SENTENCES)
    return (sentences[start : start + SHARD_SENTENCES] for start in starts)


def sentence_indices(pairs: Pairs) -> tuple[Index, Index]:
    """Indices of each pair's two sentences in `pairs.sentences`: [N] each."""
    order = {text: index for index, text in enumerate(pairs.sentences)}
    left, right = (np.array([order[text] for text in texts]) for texts in (pairs.a, pairs.b))
    return left, right


def head_scores(head: Head, tokens: TokenVectors, left: Index, right: Index) -> dict[str, Scores]:
    """Scores between sentences `left` and `right` by every metric of the head's model."""
    if head.spec.model == "categorical":
        return mixture_scores(head.mixtures(tokens), left, right, head.tensors.get("centre"))
    codes = head.codes(tokens.vectors.astype(np.float32))  # [T, L, *]
    coded = TokenVectors(codes.reshape(len(codes), -1), tokens.ids, tokens.lengths)
    if head.spec.model == "autoencoder":
        return {"cosine": _cosine(_means(coded, head.weights(tokens)), left, right)}
    by_token = [*coded]
    return {
        "l2": gaussian_mixture_l2(by_token, left, right),
        "joint l2": gaussian_mixture_l2(by_token, left, right, joint=True),
    }


def mixture_scores(
    mixtures: Floats, left: Index, right: Index, centre: Floats | None
) -> dict[str, Scores]:
    """Scores between mixtures [S, L, C] by every metric; NaN mixtures are missing."""
    metrics = [m for m in get_args(Metric) if m != "centred" or centre is not None]
    known = np.isfinite(mixtures[:, 0, 0])  # [S]
    usable = np.flatnonzero(known[left] & known[right])
    scores = {metric: np.full(len(left), np.nan) for metric in metrics}
    for start in range(0, len(usable), _CHUNK):
        chunk = usable[start : start + _CHUNK]
        a, b = mixtures[left[chunk]], mixtures[right[chunk]]
        for metric in metrics:
            scores[metric][chunk] = similarity(metric, a, b, centre)
    return {metric: fill_missing(values) for metric, values in scores.items()}


def fill_missing(scores: Scores) -> Scores:
    """Replace NaN, the score of a sentence without known words, by the lowest score."""
    lowest = 0.0 if np.isnan(scores).all() else np.nanmin(scores)
    return np.where(np.isnan(scores), lowest, scores)


def pooling_scores(
    tokens: TokenVectors, left: Index, right: Index, static: bool, head: Head | None = None
) -> dict[str, Scores]:
    """Cosine after mean, max and [CLS] pooling; static vectors have no [CLS].

    A head adds mean pooling of vectors minus its token mean and, if it weights tokens, the means
    with its weights.
    """
    means = _means(tokens)
    pooled = {"mean": means, "max": _pool(tokens, lambda v: v.max(axis=0))}
    if not static:
        pooled["cls"] = _pool(tokens, lambda v: v[0])
    if head is not None:
        centre = head.tensors["mean"]
        pooled["centred mean"] = means - centre
        if head.spec.token_weighting != "uniform":
            weighted = _means(tokens, head.weights(tokens))
            pooled["weighted mean"] = weighted
            pooled["weighted centred mean"] = weighted - centre
    return {name: _cosine(vectors, left, right) for name, vectors in pooled.items()}


def _means(tokens: TokenVectors, weights: Floats | None = None) -> Floats:
    """Weighted mean vector of each sentence: [S, H]; zeros if all weights are zero."""
    weights = np.ones(len(tokens.ids), np.float32) if weights is None else weights
    weighted = TokenVectors(
        tokens.vectors.astype(np.float32) * weights[:, None], tokens.ids, tokens.lengths
    )
    totals = np.bincount(tokens.sentence_of, weights, len(tokens)).astype(np.float32)
    sums = _pool(weighted, lambda v: v.sum(axis=0))
    return (sums / np.maximum(totals, 1e-9)[:, None]).astype(np.float32)


def _pool(tokens: TokenVectors, pool: Callable[[Floats], Floats]) -> Floats:
    """One vector per sentence [S, H]; zeros for a sentence without tokens."""
    zeros = np.zeros(tokens.vectors.shape[1], np.float32)
    return np.stack([pool(v.astype(np.float32)) if len(v) else zeros for v in tokens])


def _cosine(vectors: Floats, left: Index, right: Index) -> Scores:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.maximum(norms, 1e-12)).astype(np.float64)
    scores: Scores = (unit[left] * unit[right]).sum(axis=1)
    return scores


def gaussian_mixture_l2(
    codes: list[Floats], left: Index, right: Index, joint: bool = False
) -> Scores:
    """Minus the L2 distance between two sentences' densities under a Normal VAE, closed form.

    A token's code [2L] holds the mean and log variance of each latent dim; a sentence's density is
    the average of its tokens'. The paper does not say whether it compares the densities of each dim
    or of all dims together:

    - default: squared distances of the L one-dimensional densities, averaged.
    - `joint`: the distance of the L-dimensional densities. Their norms differ by the product of L
      factors, so the sharpest sentence dominates the distance.

    Neither always agrees better with human scores (docs/reproduction.md).
    """
    means = [code.reshape(len(code), -1, 2)[..., 0] for code in codes]  # [T, L] each
    variances = [np.exp(code.reshape(len(code), -1, 2)[..., 1], dtype=np.float64) for code in codes]

    def overlap(i: int, j: int) -> NDArray[np.float64]:
        """The integral of the product of two densities: [L], or [1] if joint."""
        if not len(means[i]) or not len(means[j]):
            return np.full(1 if joint else codes[i].shape[1] // 2, np.nan)
        variance = variances[i][:, None] + variances[j]  # [T, T', L]
        distance = means[i][:, None] - means[j]
        log_density = -(distance**2) / (2 * variance) - np.log(2 * np.pi * variance) / 2
        if joint:
            log_density = log_density.sum(axis=-1, keepdims=True)
        density: NDArray[np.float64] = np.exp(log_density).mean(axis=(0, 1))
        return density

    own = np.stack([overlap(i, i) for i in range(len(codes))])  # [S, L]
    shared = np.stack([overlap(i, j) for i, j in zip(left, right, strict=True)])  # [N, L]
    squared = (own[left] + own[right] - 2 * shared).clip(min=0).mean(axis=1)
    return fill_missing(-np.sqrt(squared))


def random_control(head: Head, seed: int = 0, learned_weights: bool = True) -> Head:
    """The same head with an untrained encoder; without a centre, unless it is orthogonal.

    Layers are initialised as in training. Without `learned_weights`, the learned token weights are
    removed as well.
    """
    if head.spec.recipe.get("encoder") == "orthogonal":
        return _orthogonal_control(head, seed)
    rng = np.random.default_rng(seed)
    removed = ("centre",) if learned_weights else ("centre", "weigher.")
    tensors = {name: t for name, t in head.tensors.items() if not name.startswith(removed)}
    for index, (weight, bias) in enumerate(head.encoder):
        bound = 1 / np.sqrt(weight.shape[1])
        for kind, trained in (("weight", weight), ("bias", bias)):
            values = rng.uniform(-bound, bound, trained.shape).astype(np.float32)
            tensors[f"encoder.{index}.{kind}"] = rounded(values)
    return Head(head.spec, tensors)


def _orthogonal_control(head: Head, seed: int) -> Head:
    (weight, _), *_ = head.encoder
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
    encoder = orthogonal_encoder(drawn, head.spec.latent_dims).numpy()
    return Head(head.spec, {**head.tensors, "encoder.0.weight": rounded(encoder)})
