"""Rounds of comparisons: candidate pairs by projected vectors, then their exact scores."""

from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np

from lattemix.bulk.dedup.cells import Index, find_matches
from lattemix.bulk.dedup.pairs import Floats, Ids, Mask, Pairs, join
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.dedup.task import Comparison
from lattemix.bulk.dedup.vectors import Models, Problem, VectorModel, Vectors
from lattemix.bulk.folder import read_result, write_arrays, write_text
from lattemix.bulk.sources import Record

_TEXTS = 8192  # texts compared by one part, about
_PAIRS = 8192  # scored at once: so many vectors of both their texts are in memory
_STATE = "state.npz"


class CellRange(Record):
    """Consecutive cells of a round."""

    round: str  # its directory
    number: int
    start: int
    stop: int
    texts: int  # in them


class RangeResult(Record):
    """What became of the pairs of some cells."""

    texts: int  # compared
    candidates: int  # pairs
    unscored: int  # of them: the second model rejects a text
    first_problem: Problem | None


class Round:
    """A comparison of some texts with others."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory / name

    @classmethod
    def make(cls, directory: Path, comparison: Comparison, active: Mask, visiting: Mask) -> "Round":
        """Write what a round compares, under a name that depends on it.

        Args:
            directory: of the rounds.
            comparison: how texts are compared.
            active: texts to compare.
            visiting: those of them to find matches for.
        """
        digest = blake2b(comparison.model_dump_json().encode(), digest_size=6)
        digest.update(np.packbits([active, visiting], axis=1).tobytes())
        new = cls(directory, f"round-{digest.hexdigest()}")
        new.directory.mkdir(exist_ok=True)
        if not (new.directory / _STATE).exists():
            write_arrays(new.directory / _STATE, active=active, visiting=visiting)
        return new

    def index(self, vectors: Vectors) -> Index:
        """Return the cells of the texts that it compares."""
        with np.load(self.directory / _STATE) as state:
            return Index(vectors.nearest, state["active"], state["visiting"])

    def ranges(self, index: Index) -> list[CellRange]:
        """Split the cells into ranges of about as many texts each."""
        totals = np.concatenate([[0], np.cumsum(index.sizes())])  # texts before each cell
        starts = np.searchsorted(totals, np.arange(0, totals[-1], _TEXTS))
        bounds = [*np.unique(starts).tolist(), len(totals) - 1]
        return [
            CellRange(
                round=self.name,
                number=number,
                start=start,
                stop=stop,
                texts=totals[stop] - totals[start],
            )
            for number, (start, stop) in enumerate(pairwise(bounds))
            if start < stop
        ]

    def result(self, part: CellRange) -> RangeResult | None:
        """Return what became of a range; None if it is not finished."""
        return read_result(self.path(part).with_suffix(".json"), RangeResult)

    def path(self, part: CellRange) -> Path:
        """Path of a range's pairs."""
        return self.directory / f"pairs-{part.number:05}.npz"

    def pairs(self, parts: list[CellRange], texts: int) -> tuple[Pairs, Floats]:
        """Return the pairs of all ranges, and the largest possible score of each text's others."""
        pairs, cutoffs = [], np.full(texts, -np.inf, np.float32)
        for part in parts:
            with np.load(self.path(part)) as arrays:
                pairs.append(Pairs(arrays["left"], arrays["right"], arrays["scores"]))
                np.maximum.at(cutoffs, arrays["crowded"], arrays["cutoffs"])
        return join(pairs), cutoffs


class CompareWorker:
    """Finds and scores the pairs of ranges of cells."""

    def __init__(self, directory: Path, comparison: Comparison, models: Models) -> None:
        """Prepare.

        Args:
            directory: of intermediate results.
            comparison: how texts are compared.
            models: of the plan.
        """
        self._directory, self._comparison, self._models = directory, comparison, models
        self._index: tuple[str, Index] | None = None

    @cached_property
    def _rows(self) -> Rows:
        return Rows.load(self._directory)

    @cached_property
    def _vectors(self) -> Vectors:
        return Vectors(self._directory, len(self._rows.first))

    @cached_property
    def _rescorer(self) -> VectorModel | None:
        scorer = self._comparison.rescorer
        return None if scorer is None else self._models.load(scorer)

    def __call__(self, part: CellRange) -> RangeResult:
        """Write the pairs of a range of cells."""
        this_round = Round(self._directory, part.round)
        candidates, crowded, cutoffs = self._candidates(part, this_round)
        pairs, _ = self._score(self._models.candidates, candidates)
        pairs, problem = pairs.where(pairs.scores >= self._comparison.floor), None
        count = len(pairs)
        if self._rescorer is not None and count:
            second, problem = self._score(self._rescorer, pairs)
            means: Floats = (pairs.scores + second.scores) / np.float32(2)
            pairs = replace(pairs, scores=means).where(~np.isnan(means))
        path = this_round.path(part)
        write_arrays(path, **vars(pairs), crowded=crowded, cutoffs=cutoffs)
        result = RangeResult(
            texts=part.texts,
            candidates=count,
            unscored=count - len(pairs),
            first_problem=problem,
        )
        write_text(path.with_suffix(".json"), result.model_dump_json())
        return result

    def _candidates(self, part: CellRange, this_round: Round) -> tuple[Pairs, Ids, Floats]:
        """Return pairs without scores, the crowded texts, and the cutoffs of these."""
        if self._index is None or self._index[0] != part.round:
            self._index = (part.round, this_round.index(self._vectors))
        matches = [
            find_matches(
                self._vectors, self._index[1], cell, self._comparison.floor, self._comparable
            )
            for cell in range(part.start, part.stop)
        ]
        left, right, crowded, cutoffs = map(np.concatenate, zip(*matches, strict=True))
        unscored = np.zeros(len(left), np.float32)
        pairs = join([Pairs(np.minimum(left, right), np.maximum(left, right), unscored)])
        return pairs, crowded, cutoffs

    def _comparable(self, left: Ids, right: Ids) -> Mask:
        references = self._comparison.references
        mask: Mask = (left != right) & ((left >= references) | (right >= references))
        if self._comparison.against_only:
            mask &= (left < references) | (right < references)
        return mask

    def _score(self, model: VectorModel, pairs: Pairs) -> tuple[Pairs, Problem | None]:
        """Return pairs with their exact scores, NaN if the model rejects a text."""
        scores = np.empty(len(pairs), np.float32)
        problem: Problem | None = None
        for start in range(0, len(pairs), _PAIRS):
            rows = slice(start, start + _PAIRS)
            ids, positions = np.unique([pairs.left[rows], pairs.right[rows]], return_inverse=True)
            encoded = model.encode(self._rows.texts(ids))
            left, right = positions.reshape(2, -1)
            scores[rows] = model.similarity(encoded.vectors, left, right)
            problem = problem or encoded.first_problem(ids)
        return replace(pairs, scores=scores), problem
