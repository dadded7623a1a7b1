"""What the endpoints share: the loaded service, and a request's way to the model."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.engine import Engine
from app.errors import ApiError
from app.observe import Metrics, Trace
from app.schemas.common import Cuttable, Uncut
from app.settings import Settings
from lattemix.encoder import Encoding, TokenEncoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.similarity import check
from model_store import Manifest, Metric

T = TypeVar("T")

_MOMENT_SECONDS = 1.0


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
    started: float = field(default_factory=time.monotonic)

    async def encode(
        self,
        name: str,
        texts: Sequence[str],
        place: Callable[[int], str],
        options: Cuttable | Uncut,
    ) -> Encoding:
        """Encode the texts of a field, naming by `place` the i-th if it cannot be."""
        return await self._asked(self.service.engine.encode, name, texts, place, options)

    async def encode_tokens(
        self, name: str, texts: Sequence[str], place: Callable[[int], str], options: Cuttable
    ) -> list[TokenEncoding]:
        """The same, token by token."""
        return await self._asked(self.service.engine.encode_tokens, name, texts, place, options)

    async def _asked(
        self,
        work: Callable[..., Awaitable[T]],
        name: str,
        texts: Sequence[str],
        place: Callable[[int], str],
        options: Cuttable | Uncut,
    ) -> T:
        self._check(name, texts, place)
        truncate, cut = bool(options.truncate), options.truncation_direction
        try:
            return await work(texts, self.trace, truncate, cut, self._while_awaited)
        except EmptyTextError as error:
            raise ApiError("Empty", f"{place(error.index)} {error.reason}.") from error
        except TooLongError as error:
            remedy = 'shorten it, or send "truncate": true to have it cut'
            raise ApiError("TooLarge", f"{place(error.index)} {error.reason}: {remedy}.") from error

    async def compute(self, job: Callable[[], T], mixtures: int | None = None) -> T:
        """Score and write what was encoded, away from the event loop if it is much.

        That goes by how many mixtures are worked on: one for each sentence, unless said.
        """
        mixtures = mixtures or self.trace.sentences
        return await self.service.engine.compute(job, mixtures, self._while_awaited)

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Do other work of the request in a thread."""
        return await self.service.engine.off_loop(job, self._while_awaited)

    def _check(self, name: str, texts: Sequence[str], place: Callable[[int], str]) -> None:
        """Refuse no texts, too many, or too long ones, before the tokenizer sees them."""
        if not texts:
            raise ApiError("Empty", f"{name} is empty: send at least one.")
        settings = self.service.settings
        most, longest = settings.max_inputs, settings.max_characters
        if len(texts) > most:
            raise ApiError(
                "TooLarge",
                f"{name} holds {len(texts):,} sentences, more than the {most:,} of "
                "LATTEMIX_MAX_INPUTS: send several requests, or raise it.",
            )
        for index, text in enumerate(texts):
            if len(text) > longest:
                raise ApiError(
                    "TooLarge",
                    f"{place(index)} has {len(text):,} characters, more than the {longest:,} of "
                    "LATTEMIX_MAX_CHARACTERS: shorten it, or raise it.",
                )

    async def _while_awaited(self, work: asyncio.Future[T]) -> T:
        """Wait until it is done, the request's time is over, or the client has left."""
        gone: asyncio.Future[Message] | None = None
        try:
            # Looking out for the client costs more than the rest of this: not for a moment's work.
            await asyncio.wait((work,), timeout=min(_MOMENT_SECONDS, self._seconds_left))
            if not work.done():
                # The body has been read; what comes now is that the client is gone.
                gone = asyncio.ensure_future(self.request.receive())
                either: set[asyncio.Future[Any]] = {work, gone}
                await asyncio.wait(
                    either, timeout=self._seconds_left, return_when=asyncio.FIRST_COMPLETED
                )
            if work.done():
                return work.result()
            if gone is not None and gone.done():
                raise ClientDisconnect
            raise ApiError(
                "Timeout",
                f"This took longer than the {self.service.settings.request_timeout:g} seconds of "
                "LATTEMIX_REQUEST_TIMEOUT: send less at once, or raise it.",
            )
        finally:
            work.cancel()
            if gone is not None:
                gone.cancel()

    @property
    def _seconds_left(self) -> float:
        return self.started + self.service.settings.request_timeout - time.monotonic()


# A coroutine, since FastAPI would hand a plain function to a thread.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Loaded = Annotated[Service, Depends(_service)]


def call_of(request: Request) -> Call:
    """What a request's endpoint works with."""
    return Call(request.app.state.service, request, request.state.trace)


# Marks the parameter for FastAPI, which would otherwise document it; `ModelRoute` fills it.
Called = Annotated[Call, Depends(call_of)]
