"""`POST /embed`: sentences in, latent mixtures out."""

from typing import Any

from fastapi import APIRouter, Response

from app.errors import documented
from app.routes.common import Loaded, Service, json
from app.schemas import EmbedRequest, EmbedResponse

router = APIRouter(tags=["embed"])


@router.post(
    "/embed",
    response_model=EmbedResponse,
    responses=documented("Empty", "TooLarge", "Validation", "Backend", "Overloaded"),
)
async def embed(body: EmbedRequest, service: Loaded) -> Response:
    """Return each sentence's mixture: L distributions over C classes."""
    service.check("inputs", body.inputs, _place)
    # Serialising thousands of floats is work too: it stays off the event loop.
    return await service.run(lambda: json(_mixtures(body.inputs, service)))


def _place(index: int) -> str:
    return f"inputs[{index}]"


def _mixtures(texts: list[str], service: Service) -> dict[str, Any]:
    encoding = service.encode(texts, _place)
    return {
        "model": service.model,
        "shape": encoding.mixtures.shape[1:],
        "embeddings": encoding.mixtures,
        "tokens": encoding.tokens,
        "truncated": encoding.truncated,
    }
