"""Choose by cross-validation how much of a head to change, if anything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head
from lattemix.similarity import similarity
from training.adapt.examples import Examples, Index, Quality, folds, quality
from training.adapt.learning import Change, Learner
from training.adapt.static import StaticLearner
from training.evaluate.scores import fill_missing
from training.evaluate.statistics import Scores, interval

DIMS, ENCODER, TOKENS = "latent dims", "encoder", "encoder and tokens"

FOLDS, FEW_FOLDS = 5, 3
_MANY = 1000  # examples above which there are fewer folds
_HELD_OUT = 1500  # examples scored in all folds together, at most
_RESAMPLES = 500
_CHUNK = 256  # pairs compared at once: their mixtures stay in the processor's cache
# One-sided 95 %: at one standard error, random labels pass.
_STANDARD_ERRORS = 1.64
_DIM_STRENGTH = 0.01
_STRENGTHS = (30.0, 10.0, 3.0)  # of the penalty, divided by the number of examples
_STATIC_STRENGTHS = (30.0, 10.0, 3.0, 1.0)

Fit = Callable[[Index], Change]


class Capacity(NamedTuple):
    """What is learned, and how strongly it is kept near the start."""

    learned: str
    strength: float

    def __str__(self) -> str:
        return f"{self.learned}, strength {self.strength:g}"


@dataclass(frozen=True)
class HeldOut:
    """Margins of held-out examples under the head as it was and a changed one."""

    name: Quality
    targets: Scores  # [N]
    before: Scores  # [N]
    after: Scores  # [N]

    @cached_property
    def figures(self) -> tuple[float, float]:
        """Quality before and after."""
        before, after = (quality(self.name, s, self.targets) for s in (self.before, self.after))
        return before, after

    @property
    def gain(self) -> float:
        """Quality after minus quality before."""
        before, after = self.figures
        return after - before

    @cached_property
    def resampled_gains(self) -> NDArray[np.float64]:
        """The gain in bootstrap resamples of the examples: [R]."""
        rng = np.random.default_rng(0)
        draws = rng.integers(len(self.targets), size=(_RESAMPLES, len(self.targets)))
        gains = [
            quality(self.name, self.after[draw], self.targets[draw])
            - quality(self.name, self.before[draw], self.targets[draw])
            for draw in draws
        ]
        return np.array(gains)

    @property
    def gain_interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain."""
        return interval(self.resampled_gains)

    @property
    def is_better(self) -> bool:
        """Whether the gain exceeds its noise."""
        error = float(np.nanstd(self.resampled_gains))
        return self.gain > max(_STANDARD_ERRORS * error, 0)


@dataclass(frozen=True)
class Trial:
    """A capacity, and how the head did with it on held-out examples."""

    capacity: Capacity
    held_out: HeldOut


def margins(head: Head, examples: Examples, tokens: TokenVectors) -> Scores:
    """Scores of examples by the head's recommended metric: [N]."""
    left, right = examples.pairs
    metric, centre = head.spec.recommended_metric, head.tensors["centre"]
    mixtures = head.mixtures(tokens)
    scores = np.full(len(left), np.nan)
    known = np.isfinite(mixtures[:, 0, 0])
    usable = np.flatnonzero(known[left] & known[right])
    for part in np.array_split(usable, len(usable) // _CHUNK + 1):
        scores[part] = similarity(metric, mixtures[left[part]], mixtures[right[part]], centre)
    return examples.margins(fill_missing(scores))


class _Part(NamedTuple):
    """A fold: what it trains on, and what it holds out."""

    train: Index
    held_out: Examples
    tokens: TokenVectors  # of the held-out sentences
    before: Scores  # margins of the head as it was


class Selection:
    """Learns every capacity in every fold, and scores it on what the fold holds out."""

    def __init__(
        self, head: Head, examples: Examples, tokens: TokenVectors, static: bool, seed: int
    ) -> None:
        """Prepare; on a `static` backbone changes are learned through the mixtures themselves."""
        self._head, self._examples, self._tokens, self._seed = head, examples, tokens, seed
        self._learner = Learner(head, examples, tokens)
        self._static = StaticLearner(head, examples, tokens, seed) if static else None
        self.folds = FEW_FOLDS if static or len(examples) > _MANY else FOLDS

    def trials(self, advance: Callable[[], object] = lambda: None) -> list[Trial]:
        """Return all capacities with their held-out scores; `advance` is called after each fold."""
        rng = np.random.default_rng(self._seed)
        parts, first = [], list[list[tuple[Capacity, Change]]]()
        results: dict[Capacity, list[Scores]] = {}
        for train, held_out in folds(self._examples, self.folds, self._seed):
            part = self._part(train, rng.permutation(held_out)[: _HELD_OUT // self.folds])
            parts.append(part)
            first.append([*self._changes(train)])
            for capacity, change in first[-1]:
                results.setdefault(capacity, []).append(self._score(part, change))
            advance()
        trials = _trials(self._examples.quality_name, parts, results)
        if self._static:
            return trials
        # Token weights are learned beside the best matrix only, which saves half of the time.
        encoders = [trial for trial in trials if trial.capacity.learned == ENCODER]
        best = max(encoders, key=lambda trial: trial.held_out.gain).capacity
        scores = []
        for part, changes in zip(parts, first, strict=True):
            matrix = dict(changes)[best].matrix
            assert matrix is not None
            both = self._learner.matrix_and_tokens(part.train, best.strength, matrix)
            scores.append(self._score(part, both))
        tokens = {Capacity(TOKENS, best.strength): scores}
        return trials + _trials(self._examples.quality_name, parts, tokens)

    def _part(self, train: Index, held_out: Index) -> _Part:
        examples = self._examples.take(held_out)
        tokens = self._tokens.take(np.unique(self._examples.rows[held_out]))
        return _Part(train, examples, tokens, margins(self._head, examples, tokens))

    def _score(self, part: _Part, change: Change) -> Scores:
        changed = change.apply(self._head, self._tokens)
        return margins(changed, part.held_out, part.tokens)

    def _changes(self, train: Index) -> Iterator[tuple[Capacity, Change]]:
        """Capacities learned from some of the examples; strengths in falling order."""
        yield Capacity(DIMS, _DIM_STRENGTH), self._learner.dims(train, _DIM_STRENGTH)
        if self._static:
            for strength in _STATIC_STRENGTHS:
                yield Capacity(TOKENS, strength), self._static.learn(train, strength)
            return
        change = Change()
        for strength in _STRENGTHS:
            change = self._learner.matrix(train, strength, change.matrix)
            yield Capacity(ENCODER, strength), change

    def learn(self, capacity: Capacity) -> Change:
        """The change of this capacity, learned from all examples."""
        every, strength = np.arange(len(self._examples)), capacity.strength
        if capacity.learned == DIMS:
            return self._learner.dims(every, strength)
        if self._static:
            return self._static.learn(every, strength)
        change = self._learner.matrix(every, strength)
        if capacity.learned == ENCODER:
            return change
        assert change.matrix is not None
        return self._learner.matrix_and_tokens(every, strength, change.matrix)


def _trials(
    name: Quality, parts: Sequence[_Part], results: Mapping[Capacity, Sequence[Scores]]
) -> list[Trial]:
    """The margins of all folds together."""
    targets = np.concatenate([part.held_out.targets for part in parts])
    before = np.concatenate([part.before for part in parts])
    return [
        Trial(capacity, HeldOut(name, targets, before, np.concatenate(scores)))
        for capacity, scores in results.items()
    ]


def choose(trials: list[Trial]) -> Trial | None:
    """The trial with the best held-out quality whose gain exceeds its noise; None if none does."""
    better = [trial for trial in trials if trial.held_out.is_better]
    return max(better, key=lambda trial: trial.held_out.gain, default=None)
