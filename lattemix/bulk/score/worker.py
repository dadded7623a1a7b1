"""A worker: a loaded model that computes one shard after another."""

from collections.abc import Iterable, Iterator
from itertools import islice, tee
from pathlib import Path

from threadpoolctl import threadpool_limits

from lattemix.bulk.readers import Table, Values, columns_named
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Shard, Tally, Task
from lattemix.bulk.writers import (
    INTEGER,
    NUMBER,
    TEXT,
    Column,
    Origin,
    Row,
    format_for,
    open_writer,
)
from lattemix.encoder import Encoder
from lattemix.responses import EncodedText, PairSimilarity, Rejection
from lattemix.settings import ModelSettings
from lattemix.streaming import encoded_texts, pair_similarities
from model_store import LatteMixError


class Worker:
    """Computes shards of a task; raises `LatteMixError` if the store has another model."""

    def __init__(self, task: Task, folder: Folder, settings: ModelSettings) -> None:
        threadpool_limits(limits=1, user_api="blas")  # leave the cores to ONNX Runtime
        # `task.model` names the precision, which may not be this machine's default.
        update = {"model": task.model, "max_windows": task.max_windows}
        self._encoder = Encoder.load(settings.model_copy(update=update))
        manifest = self._encoder.manifest
        if manifest.fingerprint != task.fingerprint:
            raise LatteMixError(f"{settings.store} has another {task.model} than the task.")
        self._task = task
        self._folder = folder
        self._origin = Origin(manifest.name, manifest.fingerprint)
        shape: tuple[int, ...] = (manifest.latent_dims, manifest.classes)
        if format_for(Path(f"x.{task.parts}"), None) == "flat":
            shape = (manifest.latent_dims * manifest.classes,)
        self._mixture = Column("float32", shape)
        calibration = self._encoder.calibration
        has_meaning = calibration is not None and calibration.metric in task.metrics
        self._scores = (*task.metrics, *([calibration.kind] if calibration and has_meaning else []))

    def __call__(self, shard: Shard) -> Tally:
        """Write the results of a shard and return its counts."""
        task = self._task
        texts = dict.fromkeys(task.keep + task.columns, TEXT)
        scores: dict[str, Column] = dict.fromkeys(self._scores, NUMBER)
        results = scores or {"embedding": self._mixture}
        columns = {**texts, **results, "truncated": INTEGER, "error": TEXT}
        table = Table(Path(shard.path), columns_named(task.columns, task.keep), shard.start)
        tally = Tally()
        with open_writer(self._folder.part(shard), columns, self._origin) as write:
            for row in self._rows(islice(table, shard.rows)):
                write(row)
                tally.count(row, f"{shard.path}, row {shard.start.rows + tally.rows + 1:,}")
            if tally.rows != shard.rows:
                raise LatteMixError(f"{shard.path} changed while it was read.")
        self._folder.record(shard, tally)
        return tally

    def _rows(self, rows: Iterable[Values]) -> Iterator[Row]:
        """Yield the results of each row, or why it was rejected."""
        task, width = self._task, len(self._task.columns)
        rows, inputs = tee(rows)
        for values, result in zip(rows, self._results(inputs), strict=True):
            values = values[width:] + values[:width]
            row: dict[str, object] = dict(zip(task.keep + task.columns, values, strict=True))
            match result:
                case Rejection():
                    yield {**row, "error": result.reason}
                case PairSimilarity():
                    row |= {name: getattr(result, name) for name in self._scores}
                    yield {**row, "truncated": sum(result.truncated)}
                case EncodedText():
                    mixture = result.mixture.reshape(self._mixture.shape)
                    yield {**row, "embedding": mixture, "truncated": int(result.truncated)}

    def _results(
        self, rows: Iterable[Values]
    ) -> Iterator[PairSimilarity | Rejection] | Iterator[EncodedText | Rejection]:
        task = self._task
        if len(task.columns) == 1:
            texts = (row[0] for row in rows)
            return encoded_texts(self._encoder, texts, task.truncate, task.columns[0])
        a, b = task.columns
        pairs = ((row[0], row[1]) for row in rows)
        return pair_similarities(self._encoder, pairs, task.metrics, task.truncate, (a, b))
