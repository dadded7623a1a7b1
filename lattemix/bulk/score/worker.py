"""A model that does one shard after another."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from lattemix.bulk.readers import Table, Texts, columns_named
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Shard, Tally, Task, digest
from lattemix.bulk.writers import INTEGER, NUMBER, TEXT, Column, Row, format_for, writing
from lattemix.encoder import Encoder, Encoding
from lattemix.errors import EmptyTextError
from lattemix.settings import ModelSettings
from lattemix.similarity import Mixtures, similarity
from model_store import LatteMixError

# Rows encoded together. Fixed: how rows fall into batches can show in the last digit, and results
# shall not depend on the machine or on the number of workers.
_ROWS = 4096


class Worker:
    """Reads a shard, computes it and writes its part; raise if its model is not the task's."""

    def __init__(self, task: Task, folder: Folder, settings: ModelSettings) -> None:
        threadpool_limits(limits=1, user_api="blas")  # the cores are the model's
        # Of the precision that the work began with, whatever suits this machine.
        self._encoder = Encoder.load(settings.model_copy(update={"model": task.model}))
        manifest = self._encoder.manifest
        if digest(manifest) != task.model_digest:
            raise LatteMixError(
                f"{settings.store} holds another {task.model} here than where the work began."
            )
        self._task = task
        self._folder = folder
        mixture = Column("float32", (manifest.latent_dims, manifest.classes))
        if format_for(Path(f"x.{task.parts}"), None) == "flat":
            mixture = Column("float32", (manifest.latent_dims * manifest.classes,))
        self._mixture = mixture

    def __call__(self, shard: Shard) -> Tally:
        """What became of the shard's rows, once its part is in the folder."""
        task = self._task
        texts = dict.fromkeys(task.keep + task.columns, TEXT)
        scores: dict[str, Column] = dict.fromkeys(task.metrics, NUMBER)
        found = scores or {"embedding": self._mixture}
        columns = {**texts, **found, "truncated": INTEGER, "error": TEXT}
        shape = columns_named(task.columns, task.keep)
        rows = islice(Table(Path(shard.path), shape, shard.start), shard.rows)
        tally = Tally()
        with writing(self._folder.part(shard), columns) as write:
            while chunk := [*islice(rows, _ROWS)]:
                for row in self._scored(chunk):
                    write(row)
                    tally.count(row, f"{shard.path}, row {shard.start.rows + tally.rows + 1:,}")
            if tally.rows != shard.rows:
                raise LatteMixError(f"{shard.path} was changed while it was being read.")
        self._folder.record(shard, tally)
        return tally

    def _scored(self, rows: Sequence[Texts]) -> Iterator[Row]:
        """What is found for each row, or why nothing is."""
        names = self._task.columns
        pairs = [row[: len(names)] for row in rows]  # or single sentences
        places, encoding = self._encode(text for pair in pairs for text in pair)
        sound = [[places[text] for text in pair] for pair in pairs if places.keys() >= {*pair}]
        found = self._found(encoding.mixtures, sound) if sound else iter(())
        for row, pair in zip(rows, pairs, strict=True):
            kept = row[len(names) :]
            copied = dict(zip(self._task.keep + names, kept + pair, strict=True))
            empty = next((name for name in names if copied[name] not in places), None)
            if empty is None:
                cut = sum(encoding.truncated[places[text]] for text in pair)
                yield {**copied, **next(found), "truncated": cut}
            else:
                yield {**copied, "error": f"{empty} {EmptyTextError.reason}."}

    def _encode(self, texts: Iterable[str]) -> tuple[dict[str, int], Encoding]:
        """Every text in which there are words, once: its place in the encoding."""
        distinct = [*dict.fromkeys(texts)]
        try:
            encoding = self._encoder.encode(distinct)
        except EmptyTextError as error:
            empty = {error.index, *error.others}
            distinct = [text for i, text in enumerate(distinct) if i not in empty]
            encoding = self._encoder.encode(distinct)
        return {text: place for place, text in enumerate(distinct)}, encoding

    def _found(self, mixtures: Mixtures, sound: Sequence[Sequence[int]]) -> Iterator[Row]:
        """The similarities of pairs, or the mixtures of sentences, by their places."""
        sides = [mixtures[[*places]] for places in zip(*sound, strict=True)]  # [N, L, C] each
        if not self._task.metrics:
            flat = sides[0].reshape(len(sound), *self._mixture.shape)
            return ({"embedding": mixture} for mixture in flat)
        centre = self._encoder.centre
        # The model computes in float32: more digits would only look like more precision.
        scores = [
            similarity(metric, sides[0], sides[1], centre).astype(np.float32)
            for metric in self._task.metrics
        ]
        return (
            dict(zip(self._task.metrics, values, strict=True))
            for values in zip(*scores, strict=True)
        )
