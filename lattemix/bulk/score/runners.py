"""Where shards are computed: in this process, or by workers of a Ray cluster."""

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


class Runner(Protocol):
    """Computes shards."""

    settings: ModelSettings
    device: Device

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Compute shards, in any order, and yield the counts of each."""


class LocalRunner:
    """One model in this process, on all cores or the GPU."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.device: Device = likely_device(settings.provider)

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Compute shards one after the other."""
        return map(Worker(task, folder, self.settings), shards)


class RayRunner:
    """Workers of a Ray cluster, each with a model and one core or GPU.

    The cluster is the one at `RAY_ADDRESS`, or one that lives as long as this process. All
    machines must have the store, the input and the output at the same paths.
    """

    def __init__(self, settings: ModelSettings, workers: int | None) -> None:
        # Ray sends usage data by default.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(include_dashboard=False, logging_level=logging.WARNING, ignore_reinit_error=True)
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = int(resources.get("GPU", 0))
        provider = settings.provider
        if provider in ("cuda", "tensorrt") and not gpus:
            raise LatteMixError(f"LATTEMIX_PROVIDER={provider}: the Ray cluster has no GPU.")
        self.settings = settings
        self.device: Device = "cpu" if provider == "cpu" or not gpus else "cuda"
        self._workers = workers or (gpus if self.device == "cuda" else int(resources["CPU"]))

    def run(self, task: Task, folder: Folder, shards: Sequence[Shard]) -> Iterator[Tally]:
        """Distribute shards over the workers; Ray repeats the shard of a lost worker."""
        import ray

        changes: dict[str, Any] = {"threads": 1}  # a worker has one core
        if self.settings.provider == "auto":
            changes["provider"] = self.device  # no silent fallback to the CPU
        ray.data.DataContext.get_current().enable_progress_bars = False  # `score` shows its own
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [{"shard": shard.model_dump_json()} for shard in shards]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _RayWorker,
            fn_constructor_args=(task, folder, self.settings.model_copy(update=changes)),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if self.device == "cuda" else None,
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(items))),
        )
        for row in results.iter_rows():
            if row["failure"]:
                raise LatteMixError(row["failure"])
            yield Tally.model_validate_json(row["tally"])


class _RayWorker:
    """A worker with the interface of Ray Data: columns in, columns out, of one value each."""

    def __init__(self, task: Task, folder: Folder, settings: ModelSettings) -> None:
        self._load = partial(Worker, task, folder, settings)

    @cached_property
    def _worker(self) -> Worker:
        return self._load()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        try:
            tally = self._worker(Shard.model_validate_json(batch["shard"][0]))
        except (LatteMixError, OSError) as error:  # returned: Ray would print a traceback
            return {"tally": [""], "failure": [str(error)]}
        return {"tally": [tally.model_dump_json()], "failure": [""]}
