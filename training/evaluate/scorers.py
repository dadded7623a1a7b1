"""What can be evaluated: a backbone and its heads, or a served model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head
from lattemix.client import Client
from lattemix.model import Model
from lattemix.responses import PairSimilarity
from training.backbones import Backbone
from training.cache import VectorCache
from training.evaluate.report import (
    MIXTURE,
    POOLING,
    RANDOM,
    SERVED,
    SERVER,
    UNLEARNED,
    Method,
    Report,
)
from training.evaluate.scores import (
    encode,
    fill_missing,
    head_scores,
    pooling_scores,
    random_control,
    sentence_indices,
)
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores, spearman
from training.progress import progress_bar

CONTROL_SEEDS = 3

_DEV_CENTRE_SENTENCES = 1024  # fewer than for a finished head: dev scores are computed often

# Yields the scores of a set's pairs by every method; several times for several seeds.
Scorer = Callable[[Pairs], Iterable[tuple[Method, Scores]]]


def evaluate(
    sets: Sequence[Pairs],
    scorers: Sequence[Scorer],
    recommended: str | None = None,
    left_out: Sequence[str] = (),
) -> Report:
    """Score every set with every scorer."""
    report = Report(list(sets), recommended, list(left_out))
    for pairs in progress_bar("Evaluating", "sets", sets):
        for scorer in scorers:
            for method, scores in scorer(pairs):
                report.add(method, pairs.name, scores)
    return report


class BackboneScorer:
    """Scores by a backbone's poolings, by heads on it, and by their untrained controls."""

    def __init__(
        self,
        backbone: Backbone,
        cache: VectorCache,
        heads: Sequence[Head] = (),
        controls: bool = False,
        corpus: Sequence[str] = (),
    ) -> None:
        """Prepare heads that differ in their seed only, and their controls.

        Controls are centred on `corpus`, the training sentences; without it they lack `centred`.
        """
        self._backbone, self._cache = backbone, cache
        self._heads: dict[str, Sequence[Head]] = {MIXTURE: heads}
        if heads and controls:
            sample = encode(backbone, cache, corpus) if corpus else None
            self._heads[RANDOM] = _controls(heads[0], sample, learned_weights=True)
            if heads[0].spec.token_weighting == "learned":
                self._heads[UNLEARNED] = _controls(heads[0], sample, learned_weights=False)

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Method, Scores]]:
        """Yield poolings, then heads, then controls."""
        tokens = encode(self._backbone, self._cache, pairs.sentences)
        left, right = sentence_indices(pairs)
        first = next(iter(self._heads[MIXTURE]), None)
        static = self._backbone.checkpoint.is_static
        for pooling, scores in pooling_scores(tokens, left, right, static, first).items():
            yield (POOLING, pooling), scores
        for aggregation, heads in self._heads.items():
            for head in heads:
                for metric, scores in head_scores(head, tokens, left, right).items():
                    yield (aggregation, metric), scores


def _controls(head: Head, corpus: TokenVectors | None, learned_weights: bool) -> list[Head]:
    controls = [random_control(head, seed, learned_weights) for seed in range(CONTROL_SEEDS)]
    if corpus is None or head.spec.model != "categorical":
        return controls
    return [
        control
        if "centre" in control.tensors
        else replace(control, tensors={**control.tensors, "centre": control.centre_of(corpus)})
        for control in controls
    ]


class ServedScorer:
    """Scores by a served model, in this process or behind a URL, by every metric it supports."""

    def __init__(self, model: Model | Client) -> None:
        info = model.info()
        self._model, self._metrics = model, info.metrics
        self._aggregation = SERVED if isinstance(model, Model) else SERVER
        self.recommended: str = info.recommended_metric
        self.left_out: list[str] = []

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Method, Scores]]:
        """Yield every metric; rejected pairs get the lowest score."""
        texts = zip(pairs.a, pairs.b, strict=True)
        rows = list(self._model.iter_similarity(texts, self._metrics))
        self.left_out += [
            f"{pairs.name}: the model rejected a pair, which gets the lowest score: {row.reason}"
            for row in rows
            if not isinstance(row, PairSimilarity)
        ]
        for metric in self._metrics:
            scores = np.array([getattr(row, metric, np.nan) for row in rows])
            yield (self._aggregation, metric), fill_missing(scores)


class DevScore:
    """Spearman x100 of an unfinished head on a development set, by its recommended metric."""

    def __init__(
        self, pairs: Pairs, backbone: Backbone, cache: VectorCache, sample: TokenVectors
    ) -> None:
        """Encode the development set; `sample` holds training sentences, for the centre."""
        self._gold = np.array(pairs.gold)
        self._left, self._right = sentence_indices(pairs)
        self._tokens = encode(backbone, cache, pairs.sentences)
        self._sample = next(sample.chunks(_DEV_CENTRE_SENTENCES))

    def __call__(self, head: Head) -> float:
        """Score a head, which may have no centre yet."""
        metric = head.spec.recommended_metric
        is_categorical = head.spec.model == "categorical"  # the other models have one metric
        if metric == "centred" and is_categorical and "centre" not in head.tensors:
            head = Head(head.spec, {**head.tensors, "centre": head.centre_of(self._sample)})
        scores = head_scores(head, self._tokens, self._left, self._right)
        return spearman(
            scores[metric] if is_categorical else next(iter(scores.values())), self._gold
        )
