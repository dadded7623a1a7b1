"""The running service, and the context of one request to a model."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.engine import Models, ServedModel
from app.errors import ApiError
from app.observe import Metrics, Trace
from app.schemas.common import DirectedTruncation, Truncation
from app.settings import Settings
from lattemix.arguments import as_explain_truncate, as_truncate
from lattemix.encodings import Encoding, TokenEncoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.settings import Truncate

T = TypeVar("T")
FieldName = Callable[[int], str]  # the name of the i-th text in the request body

_SHORT_SECONDS = 1.0


@dataclass(frozen=True)
class Service:
    """The served models, their settings and their metrics."""

    settings: Settings
    models: Models
    metrics: Metrics


@dataclass
class RequestContext:
    """One request to a model: it encodes and computes within the request's limits."""

    service: Service
    request: Request
    trace: Trace
    model: ServedModel = field(init=False)  # set by `lease_model`
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @classmethod
    def of(cls, request: Request) -> "RequestContext":
        """Return the context of a request."""
        return cls(request.app.state.service, request, request.state.trace)

    @property
    def settings(self) -> Settings:
        """Settings of the service."""
        return self.service.settings

    @contextmanager
    def lease_model(self, name: str | None) -> Iterator[None]:
        """Choose the model of the request; None is the default."""
        with self.service.models.lease(name) as model:
            self.model = model
            _identify(self.trace, model)
            yield

    async def encode(
        self, field: str, texts: Sequence[str], name: FieldName, options: Truncation
    ) -> Encoding:
        """Encode the texts of a field of the body; errors about a text name it."""
        truncate = as_truncate(options.truncate, self.settings.truncate)
        if truncate != "error" and isinstance(options, DirectedTruncation):
            truncate = options.truncation_direction or truncate
        return await self._encode(self.model.engine.encode, field, texts, name, truncate)

    async def encode_tokens(
        self, field: str, texts: Sequence[str], name: FieldName, options: Truncation
    ) -> list[TokenEncoding]:
        """Encode every token of the texts; else like `encode`."""
        truncate = as_explain_truncate(options.truncate, self.settings.truncate)
        return await self._encode(self.model.engine.encode_tokens, field, texts, name, truncate)

    async def _encode(
        self,
        encode: Callable[..., Awaitable[T]],
        field: str,
        texts: Sequence[str],
        name: FieldName,
        truncate: Truncate,
    ) -> T:
        self.check_texts(field, texts, name)
        try:
            return await encode(texts, self.trace, truncate)
        except EmptyTextError as error:
            text = name(error.index)
            raise ApiError("Empty", f"{text} {error.reason}.", field=_field_of(text)) from error
        except TooLongError as error:
            text = name(error.index)
            raise ApiError("TooLarge", f"{text} {error.reason}.", field=_field_of(text)) from error

    async def compute(self, job: Callable[[], T], mixtures: int | None = None) -> T:
        """Run a job inline if it is small, else in a thread.

        Args:
            job: scores and serialises.
            mixtures: its size; default: the number of sentences of the request.
        """
        mixtures = mixtures or self.trace.sentences
        return await self.service.models.host.compute(job, mixtures)

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Run other work of the request in a thread."""
        return await self.service.models.host.off_loop(job)

    @property
    def created(self) -> int:
        """Time of the request, in seconds since 1970."""
        return int(time.time())

    def check_count(
        self, field: str, items: Sequence[object], remedy: str = "send several requests"
    ) -> None:
        """Reject no texts or too many."""
        if not items:
            raise ApiError("Empty", f"{field} is empty: send at least one.", field=field)
        max_inputs = self.settings.max_inputs
        if len(items) > max_inputs:
            raise ApiError(
                "TooLarge",
                f"{field} holds {len(items):,} sentences, more than the {max_inputs:,} of "
                f"LATTEMIX_MAX_INPUTS: {remedy}, or raise it.",
                field=field,
            )

    def check_texts(self, field: str, texts: Sequence[str], name: FieldName) -> None:
        """Reject no texts, too many or too long ones before they are tokenized."""
        self.check_count(field, texts)
        max_characters = self.settings.max_characters
        for index, text in enumerate(texts):
            if len(text) > max_characters:
                raise ApiError(
                    "TooLarge",
                    f"{name(index)} has {len(text):,} characters, more than the "
                    f"{max_characters:,} of LATTEMIX_MAX_CHARACTERS: shorten it, or raise it.",
                    field=_field_of(name(index)),
                )

    @asynccontextmanager
    async def time_limit(self) -> AsyncIterator[None]:
        """Cancel the work inside at the request's timeout, or when the client disconnects."""
        loop = asyncio.get_running_loop()
        disconnect: asyncio.Future[Message] | None = None

        def watch() -> None:
            nonlocal disconnect
            # The body has been read, so the next message is the disconnect.
            disconnect = asyncio.ensure_future(self.request.receive())
            disconnect.add_done_callback(cancel)

        def cancel(message: asyncio.Future[Message]) -> None:
            with suppress(RuntimeError):  # the work has just ended
                if not message.cancelled():
                    timeout.reschedule(loop.time())

        # Watching costs more than short work does.
        timer = loop.call_later(_SHORT_SECONDS, watch)
        try:
            async with asyncio.timeout_at(self.started + self.settings.request_timeout) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            if disconnect is not None and disconnect.done():
                raise ClientDisconnect from None
            raise ApiError(
                "Timeout",
                f"This took longer than the {self.settings.request_timeout:g} seconds of "
                "LATTEMIX_REQUEST_TIMEOUT: send less at once, or raise it.",
            ) from None
        finally:
            timer.cancel()
            if disconnect is not None:
                disconnect.cancel()


def choose_model(request: Request, name: str | None) -> ServedModel:
    """Return a model for a request that does not compute, and name it in the response's headers."""
    service: Service = request.app.state.service
    model = service.models.get(name)
    _identify(request.state.trace, model)
    return model


def _identify(trace: Trace, model: ServedModel) -> None:
    trace.model = model.name
    trace.fingerprint = model.fingerprint


def _field_of(name: str) -> str:
    """Return `pairs` for `pairs[3][0]`."""
    return name.partition("[")[0]


# A coroutine: FastAPI would run a plain function in a thread.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Loaded = Annotated[Service, Depends(_service)]
# `Depends` keeps FastAPI from documenting the parameter; `ModelRoute` passes the value.
Context = Annotated[RequestContext, Depends(RequestContext.of)]
