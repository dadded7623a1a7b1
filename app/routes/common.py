"""What the endpoints share: the loaded service, the limits on texts, and fast JSON."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Request, Response

from app.engine import EmptyTextError, Encoder, Encoding
from app.engine.worker import Worker
from app.errors import ApiError
from app.settings import Settings
from model_store import LatteMixError

log = logging.getLogger("lattemix")

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """A loaded model, the thread that runs it, and the limits in force."""

    settings: Settings
    encoder: Encoder
    worker: Worker

    @property
    def model(self) -> str:
        """The served model's name."""
        return self.encoder.manifest.name

    async def run(self, job: Callable[[], T]) -> T:
        """Do the work away from the event loop; what fails in it is the model's fault."""
        try:
            return await self.worker.run(job)
        except (LatteMixError, ApiError):
            raise
        except Exception as error:
            # For the operator. Tracebacks show code, not values, so no sentence is logged.
            log.exception("The model failed")
            raise ApiError("Backend", "The model failed; the server's log says why.") from error

    def check(self, field: str, texts: list[str], place: Callable[[int], str]) -> None:
        """Refuse too many texts, too long ones or empty ones; `place` names the i-th."""
        if not texts:
            raise ApiError("Empty", f"{field} is empty: send at least one.")
        most, longest = self.settings.max_inputs, self.settings.max_characters
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

    def encode(self, texts: list[str], place: Callable[[int], str]) -> Encoding:
        """Encode on the worker's thread, naming a text that has nothing to encode."""
        try:
            return self.encoder.encode(texts)
        except EmptyTextError as error:
            raise ApiError("Empty", f"{place(error.index)} {error.reason}.") from error


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Loaded = Annotated[Service, Depends(_service)]


def json(content: dict[str, Any]) -> Response:
    """Answer with JSON written straight from numpy arrays."""
    return Response(
        orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json"
    )
