"""`POST /embed`: vectors or mixtures of sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from app.errors import ApiError
from app.routes.context import Context
from app.routes.route import ModelRoute
from app.routes.serialize import (
    document_model_responses,
    json_list,
    json_response,
    npy_response,
    row_chunks,
    to_base64,
    wants_npy,
)
from app.routes.vectors import VectorFormat
from app.schemas.embed import EmbedRequest
from lattemix.responses import EmbedResponse

router = APIRouter(tags=["embed"], route_class=ModelRoute)

_CUTOFF = EmbedRequest.model_fields["cutoff"].default


@router.post(
    "/embed",
    summary="Vectors or mixtures of sentences",
    response_model=list[list[float]] | EmbedResponse,
    responses=document_model_responses(array="Vectors [N, D]; with `format`, mixtures [N, L, C]."),
)
async def embed(body: EmbedRequest, context: Context) -> Response:
    """Return vectors, as text-embeddings-inference does; with `format`, mixtures.

    Vectors have unit length, and their dot products are the similarities of the model's
    recommended metric. A mixture is L distributions over C classes.
    """
    npy = wants_npy(context.request)
    _check_options(body, npy)
    vector_format = VectorFormat.of(context.model, body)
    encoding = await context.encode("inputs", body.inputs, lambda i: f"inputs[{i}]", body)

    def vectors() -> Response:
        rows = vector_format(encoding.mixtures)
        return npy_response(rows) if npy else json_list(row_chunks(rows))

    def mixtures() -> Response:
        mixtures = encoding.mixtures
        if npy:
            return npy_response(mixtures.astype(body.dtype, copy=False))
        content = {
            **context.model.identity,
            "shape": mixtures.shape[1:],
            "tokens": encoding.tokens,
            "truncated": encoding.truncated,
        }
        formats: dict[str | None, Callable[[NDArray[np.float32]], object]] = {
            "dense": lambda mixture: mixture,
            "flat": np.ravel,
            "sparse": lambda mixture: _sparse(mixture.ravel(), body.cutoff),
            "base64": lambda mixture: to_base64(mixture, body.dtype),
        }
        convert = formats[body.format]
        return json_response(content, embeddings=([convert(mixture)] for mixture in mixtures))

    return await context.compute(vectors if body.format is None else mixtures)


def _check_options(body: EmbedRequest, npy: bool) -> None:
    """Reject options that would have no effect, unless they have their default."""
    form = "npy" if npy else body.format
    problem = None
    if body.format is None:
        problem = "cutoff: applies to the format sparse." if body.cutoff != _CUTOFF else None
    elif body.dimensions is not None or body.metric is not None:
        field = "metric" if body.dimensions is None else "dimensions"
        problem = f"{field}: applies to vectors, not to mixtures: leave out format."
    elif npy and body.format != "dense":
        problem = f"format: an npy response is always dense, not {body.format}."
    elif body.dtype in ("int8", "binary"):
        problem = f"dtype: {body.dtype} applies to vectors, not to mixtures: leave out format."
    elif form not in ("base64", "npy") and body.dtype != "float32":
        problem = f"dtype: {body.dtype} applies to base64 and npy, not to {form}."
    elif form != "sparse" and body.cutoff != _CUTOFF:
        problem = f"cutoff: applies to sparse, not to {form}."
    if problem:
        raise ApiError("Validation", problem)


def _sparse(weights: NDArray[np.float32], cutoff: float) -> dict[str, NDArray[Any]]:
    (indices,) = np.nonzero(weights >= cutoff)
    return {"indices": indices, "values": weights[indices]}
