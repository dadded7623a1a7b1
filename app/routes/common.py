"""What the endpoints share: the loaded service, and a request's way to the model."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from app.engine import EmptyTextError, Encoding, Engine
from app.engine.errors import TooLongError
from app.errors import ApiError
from app.observe import Metrics, Trace
from app.schemas.common import Cuttable, Uncut
from app.settings import Settings
from app.similarity import check
from model_store import Manifest, Metric

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """A loaded model, what is counted of it, and the limits in force."""

    settings: Settings
    engine: Engine
    metrics: Metrics

    @property
    def manifest(self) -> Manifest:
        """Of the model that is served."""
        return self.engine.encoder.manifest

    @property
    def centre(self) -> NDArray[np.float32] | None:
        """Of the model's square-rooted mixtures, if it has one."""
        return self.engine.encoder.centre

    def metric(self, asked: Metric | None) -> Metric:
        """The one asked for, if this model has what it needs, or the model's own."""
        metric = asked or self.manifest.recommended_metric
        check(metric, self.centre)
        return metric


@dataclass(frozen=True)
class Call:
    """One request to the model."""

    service: Service
    request: Request
    trace: Trace

    async def encode(
        self,
        field: str,
        texts: Sequence[str],
        place: Callable[[int], str],
        options: Cuttable | Uncut,
    ) -> Encoding:
        """Encode a field's texts, naming by `place` the i-th if it cannot be."""
        self._check(field, texts, place)
        engine = self.service.engine
        work = engine.encode(
            texts, self.trace, bool(options.truncate), options.truncation_direction
        )
        try:
            return await self._while_awaited(work)
        except EmptyTextError as error:
            raise ApiError("Empty", f"{place(error.index)} {error.reason}.") from error
        except TooLongError as error:
            raise ApiError("TooLarge", f"{place(error.index)} {error.reason}.") from error

    async def compute(self, job: Callable[[], T]) -> T:
        """Score and write, away from the event loop."""
        return await self.service.engine.compute(job)

    def _check(self, field: str, texts: Sequence[str], place: Callable[[int], str]) -> None:
        """Refuse no texts, too many, or too long ones, before the tokenizer sees them."""
        if not texts:
            raise ApiError("Empty", f"{field} is empty: send at least one.")
        settings = self.service.settings
        most, longest = settings.max_inputs, settings.max_characters
        if len(texts) > most:
            raise ApiError(
                "TooLarge",
                f"{field} holds {len(texts):,} sentences, more than the {most:,} of "
                "LATTEMIX_MAX_INPUTS: send several requests, or raise it.",
            )
        for index, text in enumerate(texts):
            if len(text) > longest:
                raise ApiError(
                    "TooLarge",
                    f"{place(index)} has {len(text):,} characters, more than the {longest:,} of "
                    "LATTEMIX_MAX_CHARACTERS: shorten it, or raise it.",
                )

    async def _while_awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Work until it is done, its time is over, or the client has left."""
        task = asyncio.ensure_future(work)
        # The body has been read; what comes now is that the client is gone.
        gone = asyncio.ensure_future(self.request.receive())
        seconds = self.service.settings.request_timeout
        try:
            await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientDisconnect
            raise ApiError(
                "Timeout",
                f"This took longer than the {seconds:g} seconds of LATTEMIX_REQUEST_TIMEOUT: send "
                "less at once, or raise it.",
            )
        finally:
            gone.cancel()
            task.cancel()
            await asyncio.wait({task})  # until it has noted what it took


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Loaded = Annotated[Service, Depends(_service)]


def _call(request: Request, service: Loaded) -> Call:
    return Call(service, request, request.state.trace)


Called = Annotated[Call, Depends(_call)]
