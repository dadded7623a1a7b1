"""What is measured: a backbone's poolings, heads and their controls, a model as it is served."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError
from training.backbones import Backbone
from training.cache import VectorCache
from training.corpus import SHARD_SENTENCES
from training.evaluate.report import CONTROL, MIXTURE, NOTHING, POOLING, SERVED, Report, Way
from training.evaluate.scores import (
    Index,
    head_scores,
    mixture_scores,
    pooling_scores,
    random_control,
)
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores
from training.progress import progress_bar

CONTROL_SEEDS = 3

# Something that can be measured: every way it compares the pairs of a set, each seed by itself.
Measure = Callable[[Pairs], Iterable[tuple[Way, Scores]]]


def measure(
    sets: Sequence[Pairs],
    measures: Sequence[Measure],
    recommended: str | None = None,
    left_out: Sequence[str] = (),
) -> Report:
    """Measure everything on every set."""
    report = Report(list(sets), recommended, list(left_out))
    for pairs in progress_bar("Evaluating", "sets", sets):
        for each in measures:
            for way, scores in each(pairs):
                report.add(way, pairs.name, scores)
    return report


class Encoded:
    """A backbone's poolings, and heads on it: their mixtures, and what to compare them with."""

    def __init__(
        self,
        backbone: Backbone,
        cache: VectorCache,
        heads: Sequence[Head] = (),
        controls: bool = False,
        corpus: Sequence[str] = (),
    ) -> None:
        """Prepare what is the same for every set.

        Args:
            backbone: the one the heads were trained on.
            cache: of encoded sentences.
            heads: differing in their seed only.
            controls: whether to measure encoders that nobody trained as well.
            corpus: sentences the heads were trained on, to centre the controls as they were
                centred. A control is measured by `centred` only with these.
        """
        self.backbone, self.cache = backbone, cache
        self.heads: dict[str, Sequence[Head]] = {MIXTURE: heads} if heads else {}
        if heads and controls:
            sample = encode(backbone, cache, corpus) if corpus else None
            self.heads[CONTROL] = _controls(heads[0], sample, learned_weights=True)
            if heads[0].spec.token_weighting == "learned":
                self.heads[NOTHING] = _controls(heads[0], sample, learned_weights=False)

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Way, Scores]]:
        """Poolings first, then heads, then controls."""
        tokens = encode(self.backbone, self.cache, pairs.sentences)
        left, right = places(pairs)
        first = next(iter(self.heads.get(MIXTURE, ())), None)
        static = self.backbone.checkpoint.is_static
        for pooling, scores in pooling_scores(tokens, left, right, static, first).items():
            yield (POOLING, pooling), scores
        for aggregation, heads in self.heads.items():
            for head in heads:
                for metric, scores in head_scores(head, tokens, left, right).items():
                    yield (aggregation, metric), scores


class Served:
    """An artifact, at its precision, as the server would answer with it."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Way, Scores]]:
        """Every metric the model has."""
        sentences = pairs.sentences
        manifest = self.encoder.manifest
        shape = (len(sentences), manifest.latent_dims, manifest.classes)
        mixtures = np.full(shape, np.nan, np.float32)
        known = list(range(len(sentences)))
        while known:
            try:
                mixtures[known] = self.encoder.encode([sentences[i] for i in known]).mixtures
                break
            except EmptyTextError as error:
                del known[error.index]  # the model finds no word in it
        found = mixture_scores(mixtures, *places(pairs), self.encoder.centre)
        yield from (((SERVED, metric), scores) for metric, scores in found.items())


def places(pairs: Pairs) -> tuple[Index, Index]:
    """Where each pair's sentences are among the distinct ones, [N] each."""
    order = {text: place for place, text in enumerate(pairs.sentences)}
    left, right = (np.array([order[text] for text in texts]) for texts in (pairs.a, pairs.b))
    return left, right


def encode(backbone: Backbone, cache: VectorCache, sentences: Sequence[str]) -> TokenVectors:
    """The sentences' token vectors, without words unknown to the backbone, through the cache."""
    parts = [cache.encode(backbone, shard) for shard in in_shards(sentences)]
    return TokenVectors.join(parts).without(backbone.checkpoint.unknown_id)


def in_shards(sentences: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many sentences at a time as are encoded and kept together."""
    starts = range(0, len(sentences), SHARD_SENTENCES)
    return (sentences[start : start + SHARD_SENTENCES] for start in starts)


def _controls(head: Head, corpus: TokenVectors | None, learned_weights: bool) -> list[Head]:
    controls = [random_control(head, seed, learned_weights) for seed in range(CONTROL_SEEDS)]
    if corpus is None or head.spec.model != "categorical":
        return controls
    return [
        replace(control, tensors={**control.tensors, "centre": control.centre_of(corpus)})
        for control in controls
    ]
