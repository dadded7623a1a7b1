"""Order of the latent dims: the first k of them preserve the similarity of all as well as k can."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, Head, HeadError
from lattemix.similarity import vectors
from model_store.latents import LATENTS
from model_store.latents import read as read_latents
from model_store.latents import write as write_latents
from training.cache import VectorCache
from training.encoding import open_corpus
from training.exclusion import Exclusion

SENTENCES = 2048  # whose similarities the order is to preserve
_NEAREST, _RANDOM = 8, 8  # pairs of each sentence

Order = NDArray[np.int64]  # [L], a permutation of the latent dims


def order(
    directory: Path,
    files: Sequence[Path],
    cache: VectorCache,
    columns: Sequence[str] = (),
    exclusion: Exclusion | None = None,
    backbone: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> None:
    """Order the latent dims of a finished head, in its directory."""
    head = Head.load(directory)
    if head.spec.model != "categorical":
        raise HeadError(f"{directory} is of the {head.spec.model} model, which has no vectors.")
    spec, path = head.spec, directory / LATENTS
    latents = None
    if path.is_file():
        latents = read_latents(path, spec.sha256, spec.latent_dims, spec.classes)
    with open_corpus(head, files, cache, columns, exclusion, backbone) as encoded:
        tokens = encoded.first(SENTENCES)
    found = find_order(head, tokens)
    path.unlink(missing_ok=True)  # it describes the head by its digest
    permuted(head, found).save(directory)
    if latents is not None:
        digest = Head.load(directory).spec.sha256
        write_latents([latents[dim] for dim in found], str(digest), directory)
    notify(f"Ordered the latent dims of {directory}; export the head again to serve it.")


def find_order(head: Head, tokens: TokenVectors) -> Order:
    """Return the order of a head's latent dims on these sentences."""
    mixtures = head.mixtures(tokens)  # [N, L, C]
    mixtures = mixtures[np.isfinite(mixtures).all(axis=(1, 2))]
    metric, centre = head.spec.recommended_metric, head.tensors["centre"]
    rows = vectors(metric, mixtures, centre).astype(np.float32)
    return greedy_order(rows.reshape(mixtures.shape))


def greedy_order(rows: Floats, seed: int = 0) -> Order:
    """Order latent dims by forward selection.

    Each step adds the dim that maximises the correlation of the prefix's similarity with that of
    all dims, over random pairs of sentences and nearest neighbours.

    Args:
        rows: unit vectors of sentences, by latent dim: [N, L, C].
        seed: of the random pairs.
    """
    a, b = _pairs(rows.reshape(len(rows), -1), np.random.default_rng(seed))
    # A prefix has the similarity sum(dots) / sqrt(sum(norms of a) * sum(norms of b)).
    dots = np.stack([np.vecdot(part[a], part[b]) for part in rows.swapaxes(0, 1)])  # [L, P]
    norms = np.vecdot(rows, rows).T  # [L, N], squared
    full = dots.sum(axis=0)  # [P]
    target = full - full.mean()
    tiny = np.finfo(np.float32).tiny
    remaining = list(range(rows.shape[1]))
    chosen: list[int] = []
    dot, norm = np.zeros_like(full), np.zeros_like(norms[0])
    while remaining:
        lengths = np.sqrt(norms[remaining] + norm)  # [R, N]
        products = np.maximum(lengths[:, a] * lengths[:, b], tiny)  # [R, P]
        scores = (dots[remaining] + dot) / products
        correlations = scores @ target / np.maximum(scores.std(axis=1), tiny)  # [R], up to a factor
        best = remaining.pop(int(correlations.argmax()))
        dot, norm = dot + dots[best], norm + norms[best]
        chosen.append(best)
    return np.array(chosen)


def permuted(head: Head, order: Order) -> Head:
    """Return the head with its latent dims in another order; similarities are the same."""
    tensors = dict(head.tensors)
    last = f"encoder.{len(head.encoder) - 1}"
    for name in (f"{last}.weight", f"{last}.bias"):
        by_dim = tensors[name].reshape(len(order), -1, *tensors[name].shape[1:])  # [L, C, ...]
        tensors[name] = by_dim[order].reshape(tensors[name].shape)
    tensors["centre"] = tensors["centre"][order]
    if "probes" in tensors:
        tensors["probes"] = tensors["probes"][:, order]
    return Head(head.spec, tensors)


def _pairs(units: Floats, random: np.random.Generator) -> tuple[Order, Order]:
    """Indices [P] of the first and second sentences: nearest neighbours, and random pairs."""
    count = len(units)
    nearest = min(_NEAREST, count - 1)
    table = units @ units.T
    np.fill_diagonal(table, -np.inf)
    neighbours = np.argpartition(-table, nearest - 1, axis=1)[:, :nearest]  # [N, K]
    others = np.arange(count)[:, None] + random.integers(1, count, (count, _RANDOM))
    second = np.concatenate([neighbours, others % count], axis=1)  # [N, K + R]
    return np.repeat(np.arange(count), second.shape[1]), second.ravel()
