"""Lessons of a taught head: sentences in memory, with the teacher's vectors and neighbours."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, normalise
from training.backbones.static import StaticVectors
from training.corpus import CorpusError
from training.device import device
from training.encoding import EncodedCorpus
from training.progress import progress_bar
from training.recipe import Recipe
from training.teacher import Teacher, directions

_BLOCK = 1024  # sentences whose similarities to all others are in memory at once


@dataclass(frozen=True)
class Lessons:
    """The training sentences in memory: tokens, the teacher's vectors, nearest neighbours.

    Sentences share rows of `vectors`: with static vectors one per token of the vocabulary.
    """

    vectors: NDArray[np.floating]  # [U, H], normalised
    rows: NDArray[np.int32]  # [T], the vector of each token
    lengths: NDArray[np.int32]  # [N], tokens per sentence, at least 1
    teacher: Floats  # [N, D], unit length
    neighbours: NDArray[np.int32]  # [N, K], by the teacher

    def batch(self, sentences: NDArray[np.intp]) -> "Lesson":
        """Return the lesson of these sentences."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[sentences]
        spans = [np.arange(starts[i], starts[i] + self.lengths[i]) for i in sentences]
        rows, column = np.unique(self.rows[np.concatenate(spans)], return_inverse=True)
        counts = np.zeros((len(sentences), len(rows)), np.float32)  # [N, U]
        np.add.at(counts, (np.repeat(np.arange(len(sentences)), lengths), column), 1)
        vectors = torch.from_numpy(self.vectors[rows].astype(np.float32))
        return Lesson(vectors, torch.from_numpy(counts), torch.from_numpy(self.teacher[sentences]))


@dataclass(frozen=True)
class Lesson:
    """One batch of N sentences with U distinct tokens."""

    vectors: Tensor  # [U, H]
    counts: Tensor  # [N, U]
    teacher: Tensor  # [N, D]


def prepare_lessons(
    encoded: EncodedCorpus, recipe: Recipe, teacher: Teacher, mean: Floats, progress: bool = True
) -> Lessons:
    """Encode the corpus by the backbone and by the teacher, and find neighbours.

    Sentences without a known token are left out.
    """
    tokens, taught = _encode(encoded, teacher, progress)
    known = np.flatnonzero(tokens.lengths)
    if isinstance(encoded.backbone, StaticVectors):
        vectors, rows = encoded.backbone.table, tokens.ids
    else:
        vectors, rows = tokens.vectors, np.arange(len(tokens.ids), dtype=np.int32)
    normalised = normalise(vectors.astype(np.float32), mean, recipe.normalisation)
    units = directions(taught[known], str(recipe.teacher))
    return Lessons(
        normalised.astype(vectors.dtype),
        rows,
        tokens.lengths[known],
        units,
        nearest_neighbours(units, recipe.neighbours),
    )


def _encode(
    encoded: EncodedCorpus, teacher: Teacher, progress: bool
) -> tuple[TokenVectors, Floats]:
    """All tokens of the corpus, without vectors if they are static, and the teacher's vectors."""
    corpus, backbone = encoded.corpus, encoded.backbone
    parts: list[TokenVectors] = []
    taught: list[Floats] = []
    bar = progress_bar("Teacher", "sentences", total=corpus.sentences, shown=progress)
    for index in range(corpus.shards):
        sentences = corpus.shard(index)
        compute = partial(teacher.vectors, sentences)
        taught.append(encoded.cache.sentence_vectors(teacher.sha256, sentences, compute))
        if isinstance(backbone, StaticVectors):
            tokens = backbone.encode(sentences).without(backbone.checkpoint.ignored_ids)
            parts.append(replace(tokens, vectors=tokens.vectors[:0]))
        else:
            parts.append(encoded.shard(index))
        bar.update(len(sentences))
    bar.close()
    return TokenVectors.join(parts), np.concatenate(taught)


def nearest_neighbours(vectors: Floats, count: int) -> NDArray[np.int32]:
    """Indices of the `count` most similar other rows of unit vectors [N, D]: [N, count]."""
    if len(vectors) <= count:
        raise CorpusError(
            f"The corpus has {len(vectors):,} sentences with known words, but neighbours is "
            f"{count}: teach with more sentences, or set fewer neighbours."
        )
    everything = torch.from_numpy(vectors).to(device())
    nearest = np.empty((len(vectors), count), np.int32)
    for start in range(0, len(vectors), _BLOCK):
        similarities = everything[start : start + _BLOCK] @ everything.T  # [B, N]
        own = torch.arange(len(similarities), device=everything.device)
        similarities[own, start + own] = -torch.inf
        best = similarities.topk(count, dim=1).indices
        nearest[start : start + _BLOCK] = best.cpu().numpy()
    return nearest
