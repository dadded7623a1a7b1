"""Where the parts of a task are computed: in this process, or by workers of a Ray cluster."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from lattemix.session import likely_device
from lattemix.settings import ModelSettings
from model_store import LatteMixError
from model_store.choice import Device

Part = TypeVar("Part", bound=BaseModel)
Result = TypeVar("Result", bound=BaseModel)


Load = Callable[[], Callable[[Part], Result]]  # makes a worker, which computes part after part


class Runner(Protocol):
    """Computes parts."""

    settings: ModelSettings  # of the workers
    device: Device

    def run(
        self, load: Load[Part, Result], parts: Sequence[Part], results: type[Result]
    ) -> Iterator[Result]:
        """Compute parts, in any order, and yield the result of each."""


class LocalRunner:
    """One worker in this process, on all cores or the GPU."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.device: Device = likely_device(settings.provider)

    def run(
        self, load: Load[Part, Result], parts: Sequence[Part], results: type[Result]
    ) -> Iterator[Result]:
        """Compute parts one after the other."""
        return map(load(), parts) if parts else iter(())


class RayRunner:
    """Workers of a Ray cluster, each with one core or GPU.

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
        if provider == "cuda" and not gpus:
            raise LatteMixError("LATTEMIX_PROVIDER=cuda: the Ray cluster has no GPU.")
        self.device: Device = "cpu" if provider == "cpu" or not gpus else "cuda"
        changes: dict[str, Any] = {"threads": 1}  # a worker has one core
        if provider == "auto":
            changes["provider"] = self.device  # no silent fallback to the CPU
        self.settings = settings.model_copy(update=changes)
        self._workers = workers or (gpus if self.device == "cuda" else int(resources["CPU"]))

    def run(
        self, load: Load[Part, Result], parts: Sequence[Part], results: type[Result]
    ) -> Iterator[Result]:
        """Distribute parts over the workers; Ray repeats the part of a lost worker."""
        if not parts:
            return
        import ray

        ray.data.DataContext.get_current().enable_progress_bars = False  # callers show their own
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [{"part": part.model_dump_json()} for part in parts]
        rows = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _RayWorker,
            fn_constructor_args=(load, type(parts[0])),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if self.device == "cuda" else None,
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(items))),
        )
        for row in rows.iter_rows():
            if row["failure"]:
                raise LatteMixError(row["failure"])
            yield results.model_validate_json(row["result"])


def runner_of(
    engine: Literal["local", "ray"], settings: ModelSettings, workers: int | None
) -> Callable[[], Runner]:
    """Return a function that starts the runner of an engine."""
    if engine == "ray":
        return lambda: RayRunner(settings, workers)
    if workers is not None:
        raise LatteMixError("--workers is for --engine ray; --engine local uses all cores.")
    return lambda: LocalRunner(settings)


class _RayWorker(Generic[Part, Result]):
    """A worker with the interface of Ray Data: columns in, columns out, of one value each."""

    def __init__(self, load: Load[Part, Result], kind: type[Part]) -> None:
        self._load, self._kind = load, kind

    @cached_property
    def _worker(self) -> Callable[[Part], Result]:
        return self._load()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        try:
            result = self._worker(self._kind.model_validate_json(batch["part"][0]))
        except (LatteMixError, OSError) as error:  # returned: Ray would print a traceback
            return {"result": [""], "failure": [str(error)]}
        return {"result": [result.model_dump_json()], "failure": [""]}
