"""How alike each way of aggregating tokens finds two sentences."""

from collections.abc import Callable
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from app.similarity import similarity
from model_store import Metric
from training.backbones import TokenVectors
from training.head import Floats, Head, rounded

METRICS: tuple[Metric, ...] = get_args(Metric)

Scores = NDArray[np.float64]  # [N], one per pair


def mixture_scores(head: Head, a: TokenVectors, b: TokenVectors) -> dict[str, Scores]:
    """Every metric between a head's mixtures of two lists of sentences."""
    return served_scores(head.mixtures(a), head.mixtures(b), head.tensors.get("centre"))


def served_scores(left: Floats, right: Floats, centre: Floats | None) -> dict[str, Scores]:
    """Every metric between mixtures [N, L, C], however they were made."""
    metrics = [metric for metric in METRICS if metric != "centred" or centre is not None]
    known = np.isfinite(left[:, 0, 0]) & np.isfinite(right[:, 0, 0])  # [N]
    scores: dict[str, Scores] = {}
    for metric in metrics:
        found = similarity(metric, left[known], right[known], centre)
        # A sentence of which the backbone knows no word is like no other.
        scores[metric] = np.full(len(left), found.min(initial=0))
        scores[metric][known] = found
    return scores


def pooling_scores(head: Head, a: TokenVectors, b: TokenVectors) -> dict[str, Scores]:
    """Cosine after the usual poolings, and after subtracting the token mean.

    Where the head weighs tokens, the means are taken with its weights as well.
    """
    mean = head.tensors["mean"]
    scores = {
        "mean": _cosine(_means(a), _means(b)),
        "centred mean": _cosine(_means(a) - mean, _means(b) - mean),
        "max": _cosine(_each(a, lambda v: v.max(axis=0)), _each(b, lambda v: v.max(axis=0))),
    }
    if head.spec.backbone.architecture != "static":
        scores["cls"] = _cosine(_each(a, lambda v: v[0]), _each(b, lambda v: v[0]))
    if head.spec.token_weighting != "uniform":
        left, right = (_means(tokens, head.weights(tokens)) for tokens in (a, b))
        scores["weighted mean"] = _cosine(left, right)
        scores["weighted centred mean"] = _cosine(left - mean, right - mean)
    return scores


def _means(tokens: TokenVectors, weights: Floats | None = None) -> Floats:
    """Mean vector of each sentence, by weight: [N, H]; zeros where nothing weighs anything."""
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


def _cosine(left: Floats, right: Floats) -> Scores:
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    scores: Scores = (left * right).sum(axis=1) / np.maximum(norms, 1e-12)
    return scores


def baseline_scores(head: Head, a: TokenVectors, b: TokenVectors) -> dict[str, Scores]:
    """The paper's baselines: cosine of mean codes, or L2 between mixtures of Gaussians."""
    if head.spec.model == "autoencoder":
        left, right = (_means(_coded(head, tokens)) for tokens in (a, b))
        return {"cosine": _cosine(left, right)}
    codes = (_coded(head, tokens) for tokens in (a, b))
    return {"l2": np.array([-gaussian_mixture_l2(x, y) for x, y in zip(*codes, strict=True)])}


def _coded(head: Head, tokens: TokenVectors) -> TokenVectors:
    codes = head.codes(tokens.vectors.astype(np.float32))  # [T, L, *]
    return TokenVectors(codes.reshape(len(codes), -1), tokens.ids, tokens.lengths)


def gaussian_mixture_l2(a: Floats, b: Floats) -> float:
    """L2 distance between the densities of two sentences under a Normal VAE, in closed form.

    A token's code [2L] holds the mean and log variance of each latent dim; a sentence's density in
    a dim is the average of its tokens'. The squared distances are averaged over the dims: the
    density of all dims at once underflows.
    """

    def overlap(x: Floats, y: Floats) -> Floats:
        """The integral of the product of two mixtures, per dim: [L]."""
        x, y = (code.reshape(len(code), -1, 2) for code in (x, y))
        distance = x[:, None, :, 0] - y[None, :, :, 0]  # [S, S', L]
        deviation = np.sqrt(np.exp(x[:, None, :, 1]) + np.exp(y[None, :, :, 1]))
        density: Floats = norm.pdf(distance / deviation) / deviation
        return density.mean(axis=(0, 1))

    squared = overlap(a, a) + overlap(b, b) - 2 * overlap(a, b)
    return float(np.sqrt(squared.clip(min=0).mean()))


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


def spearman(scores: Scores, gold: NDArray[np.float64]) -> float:
    """Spearman's rank correlation, x100; NaN where all scores are equal."""
    with np.errstate(invalid="ignore"):
        return float(100 * np.corrcoef(rankdata(scores), rankdata(gold))[0, 1])


def interval(
    better: Scores, worse: Scores, gold: NDArray[np.float64], resamples: int = 1000
) -> tuple[float, float]:
    """95 % bootstrap interval of the difference in Spearman x100, the same pairs for both."""
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(resamples):
        drawn = rng.integers(len(gold), size=len(gold))
        differences.append(
            spearman(better[drawn], gold[drawn]) - spearman(worse[drawn], gold[drawn])
        )
    low, high = np.nanpercentile(differences, [2.5, 97.5])
    return float(low), float(high)
