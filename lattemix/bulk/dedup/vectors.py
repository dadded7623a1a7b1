"""Vectors of texts: exact ones in memory, projected ones of all texts in files."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.dedup.cells import NO_CELL, Bytes, Cells, Space, make_space, sample_ids
from lattemix.bulk.dedup.pairs import Ids, Mask
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.dedup.task import Plan, Scorer
from lattemix.bulk.folder import PLAN, atomic, read_result, write_arrays, write_text
from lattemix.bulk.sources import Record
from lattemix.encoder import Encoder
from lattemix.responses import Rejection
from lattemix.settings import ModelSettings, Truncate
from lattemix.similarity import score_range, vectors
from lattemix.streaming import encoded_texts
from model_store import LatteMixError, Metric

_SHARD = 8192  # texts per file
_BATCH, _BATCH_CHARACTERS = 4096, 4_000_000  # texts, and their characters, encoded together
_PAIRS = 1024  # compared at once
_SPACE = "space.npz"


class Encoded(NamedTuple):
    """Vectors of some texts."""

    vectors: NDArray[np.float64]  # unit vectors [N, L*C], 0 for rejected texts
    reasons: dict[int, str]  # why texts were rejected, by position
    truncated: int  # texts

    def first_problem(self, ids: Ids) -> "Problem | None":
        """Return the first problem, given the ids of the texts."""
        first = min(self.reasons, default=None)
        return None if first is None else Problem(text=ids[first], reason=self.reasons[first])


class VectorModel:
    """A model that gives unit vectors whose dot products are a metric."""

    def __init__(self, encoder: Encoder, metric: Metric, truncate: Truncate) -> None:
        self._encoder, self._metric, self._truncate = encoder, metric, truncate
        self._shape = (encoder.manifest.latent_dims, encoder.manifest.classes)
        self._range = score_range(metric, self._shape[0])

    def encode(self, texts: list[str]) -> Encoded:
        """Return the vectors of texts."""
        rows = np.zeros((len(texts), self._shape[0] * self._shape[1]))
        reasons: dict[int, str] = {}
        truncated = 0
        for batch in _batches(texts):
            accepted, mixtures = [], []
            results = encoded_texts(self._encoder, texts[batch], self._truncate, "its text")
            for index, result in enumerate(results, batch.start):
                if isinstance(result, Rejection):
                    reasons[index] = result.reason
                else:
                    accepted.append(index)
                    mixtures.append(result.mixture)
                    truncated += result.truncated
            if accepted:
                rows[accepted] = vectors(self._metric, np.stack(mixtures), self._encoder.centre)
        return Encoded(rows, reasons, truncated)

    def similarity(self, rows: NDArray[np.float64], left: Ids, right: Ids) -> NDArray[np.float32]:
        """Return the metric of pairs of vectors; NaN if a text was rejected."""
        scores = np.empty(len(left), np.float32)
        for start in range(0, len(left), _PAIRS):
            pairs = slice(start, start + _PAIRS)
            products = np.vecdot(rows[left[pairs]], rows[right[pairs]])
            scores[pairs] = products.clip(*self._range)
        rejected: Mask = np.logical_not(rows.any(axis=1))
        scores[rejected[left] | rejected[right]] = np.nan
        return scores


class Models:
    """The models of a plan, loaded on first use, in each process."""

    def __init__(self, directory: Path, settings: ModelSettings) -> None:
        self._directory, self._settings = directory, settings

    def __reduce__(self) -> tuple[type["Models"], tuple[Path, ModelSettings]]:
        return Models, (self._directory, self._settings)  # without what was loaded

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return Plan.model_validate_json((self._directory / PLAN).read_bytes())

    @cached_property
    def candidates(self) -> VectorModel:
        """The model that finds candidates."""
        return self.load(self.plan.task.candidates)

    def load(self, scorer: Scorer) -> VectorModel:
        """Load a model; raise `LatteMixError` if the store has another one of its name."""
        task = self.plan.task
        update = {"model": scorer.model, "max_windows": task.max_windows}
        encoder = Encoder.load(self._settings.model_copy(update=update))
        if encoder.manifest.fingerprint != scorer.fingerprint:
            raise LatteMixError(f"{self._settings.store} has another {scorer.model} than the task.")
        return VectorModel(encoder, scorer.metric, task.truncate)


def _batches(texts: list[str]) -> Iterator[slice]:
    """Split texts into batches of bounded size: a row may have a million characters."""
    start = characters = 0
    for stop, text in enumerate(texts):
        if (characters + len(text) > _BATCH_CHARACTERS and stop > start) or stop == start + _BATCH:
            yield slice(start, stop)
            start, characters = stop, 0
        characters += len(text)
    if start < len(texts):
        yield slice(start, len(texts))


class Problem(Record):
    """A text that a model rejects, and why."""

    text: int
    reason: str


class Shard(Record):
    """Consecutive texts."""

    number: int
    start: int
    stop: int


class ShardResult(Record):
    """What became of a shard's texts."""

    texts: int
    truncated: int
    first_problem: Problem | None


def shards(texts: int) -> list[Shard]:
    """Split texts into shards."""
    starts = range(0, texts, _SHARD)
    return [Shard(number=i, start=s, stop=min(s + _SHARD, texts)) for i, s in enumerate(starts)]


def write_space(directory: Path, rows: Rows, models: Models) -> None:
    """Compute the projection and the centroids, if an interrupted run has not."""
    if (directory / _SPACE).exists():
        return
    ids = sample_ids(len(rows.first))
    parts = [
        models.candidates.encode(rows.texts(shard)).vectors.astype(np.float32)
        for shard in np.split(ids, range(_SHARD, len(ids), _SHARD))
    ]
    space = make_space(np.concatenate(parts), len(rows.first))
    write_arrays(directory / _SPACE, **space._asdict())


class VectorsWorker:
    """Computes the projected vectors of shards, and their cells."""

    def __init__(self, directory: Path, models: Models) -> None:
        self._directory, self._models = directory, models

    @cached_property
    def _rows(self) -> Rows:
        return Rows.load(self._directory)

    @cached_property
    def _space(self) -> Space:
        with np.load(self._directory / _SPACE) as arrays:
            return Space(**arrays)

    def __call__(self, shard: Shard) -> ShardResult:
        """Write the vectors of a shard."""
        encoded = self._models.candidates.encode(
            self._rows.texts(np.arange(shard.start, shard.stop))
        )
        projected = self._space.project(encoded.vectors)
        nearest = self._space.nearest(projected)
        nearest[[*encoded.reasons]] = NO_CELL
        path = _path(self._directory, shard.number)
        columns = [("vector", "i1", projected.shape[1:]), ("nearest", "<u2", nearest.shape[1:])]
        records = np.empty(len(projected), columns)
        records["vector"], records["nearest"] = projected, nearest
        with atomic(path) as file:
            np.save(file, records)
        result = ShardResult(
            texts=shard.stop - shard.start,
            truncated=encoded.truncated,
            first_problem=encoded.first_problem(np.arange(shard.start, shard.stop)),
        )
        write_text(path.with_suffix(".json"), result.model_dump_json())
        return result


def shard_result(directory: Path, shard: Shard) -> ShardResult | None:
    """Return what became of a shard; None if it is not finished."""
    return read_result(_path(directory, shard.number).with_suffix(".json"), ShardResult)


class Vectors:
    """The projected vectors of all texts."""

    def __init__(self, directory: Path, texts: int) -> None:
        paths = [_path(directory, shard.number) for shard in shards(texts)]
        self._parts = [np.load(path, mmap_mode="r") for path in paths]
        self.nearest: Cells = np.concatenate([part["nearest"] for part in self._parts])

    def __call__(self, ids: Ids) -> Bytes:
        """Return the vectors of texts [N, D]."""
        out = np.empty((len(ids), *self._parts[0]["vector"].shape[1:]), np.int8)
        if not len(ids):  # a cell whose texts were dropped in an earlier round
            return out
        order = np.argsort(ids, kind="stable")
        shard = ids[order] // _SHARD
        numbers, starts = np.unique(shard, return_index=True)
        for number, positions in zip(numbers, np.split(order, starts[1:]), strict=True):
            out[positions] = self._parts[number]["vector"][ids[positions] - number * _SHARD]
        return out


def _path(directory: Path, number: int) -> Path:
    return directory / f"vectors-{number:05}.npy"
