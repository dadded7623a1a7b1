"""How much each token counts in its sentence's mixture."""

import numpy as np
from numpy.typing import NDArray

from app.engine.tokenization import Tokenizer
from training.backbones import Checkpoint
from training.corpus import Corpus
from training.recipe import Recipe

SIF = 1e-3  # the `a` of a / (a + p(w))


def token_weights(
    checkpoint: Checkpoint, corpus: Corpus, recipe: Recipe
) -> dict[str, NDArray[np.generic]]:
    """The tokens that do not weigh 1, as a head stores them; nothing if all do.

    `sif` is smooth inverse frequency, a / (a + p) for a token that is a share p of the corpus. A
    token that stands for unknown words weighs nothing.
    """
    weights: dict[int, float] = {}
    if recipe.token_weighting == "sif":
        weights = _smooth_inverse_frequency(checkpoint, corpus, recipe.max_tokens)
    if checkpoint.unknown_id is not None:
        weights[checkpoint.unknown_id] = 0.0
    if not weights:
        return {}
    ids = sorted(weights)
    return {
        "weighted.ids": np.array(ids, np.int32),
        "weighted.weights": np.array([weights[i] for i in ids], np.float32),
    }


def _smooth_inverse_frequency(
    checkpoint: Checkpoint, corpus: Corpus, max_tokens: int
) -> dict[int, float]:
    tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)
    counts = np.zeros(0, np.int64)
    for index in range(corpus.shards):
        tokens = tokenizer(corpus.shard(index))
        ids = np.concatenate([np.array(text.ids, np.int64) for text in tokens])
        found = np.bincount(ids, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    total = counts.sum()
    return {int(i): float(SIF / (SIF + counts[i] / total)) for i in np.flatnonzero(counts)}
