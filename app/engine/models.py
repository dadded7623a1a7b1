"""The models that a server offers, and their replacement without a restart."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.engine.engine import Engine
from app.engine.errors import UnavailableError, UnknownModelError
from app.engine.host import Host
from app.observe import Metrics
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.similarity import check
from model_store import Artifact, LatteMixError, Manifest, Metric
from model_store.calibration import Calibration

log = logging.getLogger("lattemix")


@dataclass
class ServedModel:
    """A model under the name by which requests choose it."""

    name: str
    reference: str  # as the settings name it
    engine: Engine
    requests: int = 0  # in progress
    replaced: bool = False
    fingerprint: str = field(init=False)  # computed once: every response has it

    def __post_init__(self) -> None:
        self.fingerprint = self.manifest.fingerprint

    @property
    def manifest(self) -> Manifest:
        """Manifest of the model."""
        return self.engine.encoder.manifest

    @property
    def identity(self) -> dict[str, str]:
        """The fields of a response that say which weights computed it."""
        return {"model": self.name, "fingerprint": self.fingerprint}

    @property
    def centre(self) -> NDArray[np.float32] | None:
        """Centre of the model's square-rooted mixtures, if it has one."""
        return self.engine.encoder.centre

    @property
    def calibration(self) -> Calibration | None:
        """What the model's scores mean, if known."""
        return self.engine.encoder.calibration

    def metric(self, requested: Metric | None) -> Metric:
        """Return the requested metric, or the model's; raise `MetricError` if not supported."""
        metric = requested or self.manifest.recommended_metric
        check(metric, self.centre)
        return metric


class Models:
    """The served models by name; the first is the default."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Load all models; raise `LatteMixError` if one cannot be loaded."""
        self.host = Host(settings)
        self._settings = settings
        self._metrics = metrics
        encoders = {
            reference: self._load(reference) for reference in settings.models or (settings.model,)
        }
        # Several precisions of one model are served as `name:precision`.
        counts = Counter(encoder.manifest.name for encoder in encoders.values())
        cached = sum(encoder.static is None for encoder in encoders.values())
        self._cache_bytes = settings.cache_bytes // max(1, cached)
        self._models: dict[str, ServedModel] = {}
        for reference, encoder in encoders.items():
            manifest = encoder.manifest
            name = manifest.name if counts[manifest.name] == 1 else manifest.reference
            if name in self._models:
                raise LatteMixError(f"LATTEMIX_MODELS names {manifest.reference} twice.")
            self._models[name] = ServedModel(name, reference, self._start(name, encoder))
        self._reloading = asyncio.Lock()

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    @property
    def default(self) -> ServedModel:
        """The model that answers requests without a `model`."""
        return next(iter(self))

    def get(self, name: str | None) -> ServedModel:
        """Return the model of this name, `name:precision` included; None is the default."""
        if name is None:
            return self.default
        for model in self:
            if name in (model.name, model.manifest.name, model.manifest.reference):
                return model
        served = ", ".join(self._models)
        raise UnknownModelError(f"There is no model {_shortened(name)!r} here: choose {served}.")

    @contextmanager
    def lease(self, name: str | None) -> Iterator[ServedModel]:
        """Yield a model that is not closed before the block ends, even if it is replaced."""
        model = self.get(name)
        model.requests += 1
        try:
            yield model
        finally:
            model.requests -= 1
            self._close_if_unused(model)

    async def check(self) -> None:
        """Raise `UnavailableError` or `InferenceError` unless every model works."""
        if self.host.draining:
            raise UnavailableError("The service is stopping.")
        for name in tuple(self._models):
            with self.lease(name) as model:
                await model.engine.check()

    async def reload(self) -> None:
        """Load each model again whose artifact was replaced; requests in progress keep theirs.

        A model that cannot be loaded stays as it is, and the log says why.
        """
        async with self._reloading:
            for model in tuple(self):
                try:
                    encoder = await asyncio.to_thread(self._load_if_replaced, model)
                    if encoder is None:
                        log.info("%s is unchanged", model.name)
                        continue
                    engine = await asyncio.to_thread(self._start, model.name, encoder)
                except Exception as error:  # memory, for example
                    expected = isinstance(error, LatteMixError)
                    log.error("%s is not reloaded: %s", model.name, error, exc_info=not expected)
                    continue
                self._models[model.name] = ServedModel(model.name, model.reference, engine)
                model.replaced = True
                old, new = model.manifest.fingerprint, encoder.manifest.fingerprint
                log.info("%s is reloaded: %s replaces %s", model.name, new, old)
                self._close_if_unused(model)

    def close(self) -> None:
        """Stop all models, and wait for running batches."""
        for model in self:
            model.engine.stop()
        for model in self:
            model.engine.close()
        self.host.close()

    def _load(self, reference: str) -> Encoder:
        return Encoder.load(self._settings.model_copy(update={"model": reference}))

    def _load_if_replaced(self, model: ServedModel) -> Encoder | None:
        path = self._settings.store / model.manifest.name / model.manifest.precision
        if Artifact.read(path).manifest == model.manifest:
            return None
        encoder = self._load(model.reference)
        if encoder.manifest.reference != model.manifest.reference:
            raise LatteMixError(
                f"{encoder.manifest.reference} would replace {model.manifest.reference}: restart "
                "the server to change the precision."
            )
        return encoder

    def _start(self, name: str, encoder: Encoder) -> Engine:
        """Return the engine of a model, and point the model's metrics to it."""
        # A static model computes a text faster than the cache finds it.
        cache_bytes = self._cache_bytes if encoder.static is None else 0
        metrics = self._metrics.of_model(name)
        engine = Engine(encoder, self.host, cache_bytes, metrics)
        metrics.watch(
            queue_sentences=lambda: engine.queue.sentences,
            queue_tokens=lambda: engine.queue.tokens,
            cache_bytes=lambda: engine.cache.used_bytes,
        )
        self._metrics.set_info(name, encoder.manifest, encoder.provider)
        return engine

    def _close_if_unused(self, model: ServedModel) -> None:
        if model.replaced and not model.requests:
            asyncio.get_running_loop().run_in_executor(None, model.engine.close)


def _shortened(name: str) -> str:
    return name if len(name) <= 80 else name[:80] + "…"
