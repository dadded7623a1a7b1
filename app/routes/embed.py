"""`POST /embed` and `POST /v1/embeddings`: mixtures or vectors of sentences."""

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
    json_response,
    npy_response,
    to_base64,
    wants_npy,
)
from app.schemas.embed import EmbedRequest, OpenAIRequest
from lattemix.responses import EmbedResponse, OpenAIResponse
from lattemix.similarity import vectors

router = APIRouter(tags=["embed"], route_class=ModelRoute)


@router.post(
    "/embed",
    summary="Mixtures of sentences",
    response_model=EmbedResponse,
    responses=document_model_responses(array="Mixtures [N, L, C]."),
)
async def embed(body: EmbedRequest, context: Context) -> Response:
    """Return the mixture of each sentence: L distributions over C classes."""
    npy = wants_npy(context.request)
    _check_options(body, npy)
    encoding = await context.encode("inputs", body.inputs, lambda i: f"inputs[{i}]", body)
    mixtures = encoding.mixtures

    def respond() -> Response:
        if npy:
            return npy_response(mixtures.astype(body.dtype, copy=False))
        content = {
            **context.model.identity,
            "shape": mixtures.shape[1:],
            "tokens": encoding.tokens,
            "truncated": encoding.truncated,
        }
        formats: dict[str, Callable[[NDArray[np.float32]], object]] = {
            "dense": lambda mixture: mixture,
            "flat": np.ravel,
            "sparse": lambda mixture: _sparse(mixture.ravel(), body.cutoff),
            "base64": lambda mixture: to_base64(mixture, body.dtype),
        }
        convert = formats[body.format]
        return json_response(content, embeddings=([convert(mixture)] for mixture in mixtures))

    return await context.compute(respond)


def _check_options(body: EmbedRequest, npy: bool) -> None:
    """Reject options that would have no effect, unless they have their default."""
    form = "npy" if npy else body.format
    problem = None
    if npy and body.format != "dense":
        problem = f"format: an npy response is always dense, not {body.format}."
    elif form not in ("base64", "npy") and body.dtype != "float32":
        problem = f"dtype: {body.dtype} applies to base64 and npy, not to {form}."
    elif form != "sparse" and body.cutoff != EmbedRequest.model_fields["cutoff"].default:
        problem = f"cutoff: applies to sparse, not to {form}."
    if problem:
        raise ApiError("Validation", problem)


def _sparse(weights: NDArray[np.float32], cutoff: float) -> dict[str, NDArray[Any]]:
    (indices,) = np.nonzero(weights >= cutoff)
    return {"indices": indices, "values": weights[indices]}


@router.post(
    "/v1/embeddings",
    summary="Vectors of texts, for OpenAI clients",
    response_model=OpenAIResponse,
    responses=document_model_responses(),
)
async def openai_embeddings(body: OpenAIRequest, context: Context) -> Response:
    """Return vectors of unit length, in the format of OpenAI's API.

    Dot products of these vectors are the model's recommended metric.
    """
    model = context.model
    manifest = model.manifest
    length = manifest.latent_dims * manifest.classes
    if body.dimensions not in (None, length):
        raise ApiError(
            "Validation", f"dimensions: this model's vectors have {length:,}; leave it out."
        )
    metric = model.metric(body.metric)
    encoding = await context.encode("input", body.input, lambda i: f"input[{i}]", body)

    def respond() -> Response:
        rows = vectors(metric, encoding.mixtures, model.centre).astype(np.float32)
        counts = zip(encoding.tokens, encoding.truncated, strict=True)
        limit = manifest.max_tokens or 0
        tokens = sum(limit if truncated else count for count, truncated in counts)
        content = {
            "object": "list",
            **model.identity,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        convert = to_base64 if body.encoding_format == "base64" else np.asarray
        data = (
            [{"object": "embedding", "index": index, "embedding": convert(row)}]
            for index, row in enumerate(rows)
        )
        return json_response(content, data=data)

    return await context.compute(respond)
