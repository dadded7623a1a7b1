"""Who does the shards: this process, or the workers of a Ray cluster."""

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Shard, Tally, Task
from lattemix.bulk.score.worker import Worker
from lattemix.session import likely_device
from lattemix.settings import ModelSettings
from model_store import LatteMixError
from model_store.choice import Device


class Engine(Protocol):
    """What `score` asks of either."""

    settings: ModelSettings
    device: Device

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Do the shards, in any order, and say of each what became of it."""


class Local:
    """One model in this process, on all its cores or its GPU."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.device: Device = likely_device(settings.provider)

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Do the shards one after the other."""
        return map(Worker(task, folder, self.settings), shards)


class OnRay:
    """A model for each worker, which has a core or a GPU of the cluster.

    That is the one RAY_ADDRESS names, or else one that begins and ends with this process. Its
    machines must have the store, the input and the output at the same paths.
    """

    def __init__(self, settings: ModelSettings, workers: int | None) -> None:
        # Ray would report to its makers, unless its user has said that it may.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(include_dashboard=False, logging_level=logging.WARNING, ignore_reinit_error=True)
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = int(there.get("GPU", 0))
        wanted = settings.provider
        if wanted in ("cuda", "tensorrt") and not gpus:
            raise LatteMixError(f"LATTEMIX_PROVIDER={wanted}: the Ray cluster has no GPU.")
        self.settings = settings
        self.device: Device = "cpu" if wanted == "cpu" or not gpus else "cuda"
        self._workers = workers or (gpus if self.device == "cuda" else int(there["CPU"]))

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Stream the shards through the workers; what a lost one was doing is done again."""
        import ray

        own: dict[str, Any] = {"threads": 1}  # a worker has one core
        if self.settings.provider == "auto":
            own["provider"] = self.device  # and not, unnoticed, another
        ray.data.DataContext.get_current().enable_progress_bars = False  # there is ours
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [{"shard": shard.model_dump_json()} for shard in shards]
        done = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _RayWorker,
            fn_constructor_args=(task, folder, self.settings.model_copy(update=own)),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if self.device == "cuda" else None,
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(items))),
        )
        for row in done.iter_rows():
            if row["failure"]:
                raise LatteMixError(row["failure"])
            yield Tally.model_validate_json(row["tally"])


class _RayWorker:
    """A worker as Ray Data sees it: columns in, columns out, here of one value each."""

    def __init__(self, task: Task, folder: Folder, settings: ModelSettings) -> None:
        self._make = partial(Worker, task, folder, settings)

    @cached_property
    def _worker(self) -> Worker:
        return self._make()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        try:
            tally = self._worker(Shard.model_validate_json(batch["shard"][0]))
        except (LatteMixError, OSError) as error:  # as a value: Ray would make a traceback of it
            return {"tally": [""], "failure": [str(error)]}
        return {"tally": [tally.model_dump_json()], "failure": [""]}
