"""What the endpoints share: the loaded service, the limits on texts, and fast JSON."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Request, Response

from app.engine import Encoder
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
        except LatteMixError:
            raise
        except Exception as error:
            # For the operator. Tracebacks show code, not values, so no sentence is logged.
            log.exception("The model failed")
            raise ApiError("Backend", "The model failed; the server's log says why.") from error

    def check(self, field: str, texts: list[tuple[str, str]]) -> None:
        """Refuse too many texts, or empty ones; each comes with its place in the request."""
        if not texts:
            raise ApiError("Empty", f"{field} is empty: send at least one.")
        limit = self.settings.max_inputs
        if len(texts) > limit:
            raise ApiError(
                "TooLarge",
                f"{field} holds {len(texts):,} sentences, more than the {limit:,} of "
                "LATTEMIX_MAX_INPUTS: send several requests, or raise it.",
            )
        for place, text in texts:
            if not text.strip():
                raise ApiError("Empty", f"{place} is empty or only whitespace: it has no meaning.")


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Loaded = Annotated[Service, Depends(_service)]


def json(content: dict[str, Any]) -> Response:
    """Answer with JSON written straight from numpy arrays."""
    return Response(
        orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json"
    )
