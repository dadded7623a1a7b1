"""`POST /embed` and `POST /v1/embeddings`: sentences in, mixtures or vectors out."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from app.errors import ApiError
from app.routes.answers import base64_of, documented_answers, json_with, npy, wants_npy
from app.routes.common import Call, Called
from app.routes.route import ModelRoute
from app.schemas.embed import EmbedRequest, OpenAIRequest, OpenAIResponse
from lattemix.encoder import Encoding
from lattemix.responses import EmbedResponse
from lattemix.similarity import vectors
from model_store import Metric

router = APIRouter(tags=["embed"], route_class=ModelRoute)


@router.post(
    "/embed",
    summary="Mixtures of sentences",
    response_model=EmbedResponse,
    responses=documented_answers(array="Mixtures [N, L, C]."),
)
async def embed(body: EmbedRequest, call: Called) -> Response:
    """Return each sentence's mixture: L distributions over C classes."""
    as_npy = wants_npy(call.request)
    _check_options(body, as_npy)
    encoding = await call.encode("inputs", body.inputs, lambda i: f"inputs[{i}]", body)
    if as_npy:
        return await call.compute(lambda: npy(encoding.mixtures.astype(body.dtype, copy=False)))
    return await call.compute(lambda: _answer(encoding, body, call))


def _check_options(body: EmbedRequest, as_npy: bool) -> None:
    """Refuse options that would have no effect, unless they are the defaults."""
    form = "npy" if as_npy else body.format
    problem = None
    if as_npy and body.format != "dense":
        problem = f"format: an npy response is always dense, not {body.format}."
    elif form not in ("base64", "npy") and body.dtype != "float32":
        problem = f"dtype: {body.dtype} applies to base64 and npy, not to {form}."
    elif form != "sparse" and body.cutoff != EmbedRequest.model_fields["cutoff"].default:
        problem = f"cutoff: applies to sparse, not to {form}."
    if problem:
        raise ApiError("Validation", problem)


def _answer(encoding: Encoding, body: EmbedRequest, call: Call) -> Response:
    content = {
        "model": call.service.manifest.name,
        "shape": encoding.mixtures.shape[1:],
        "tokens": encoding.tokens,
        "truncated": encoding.truncated,
    }
    formats: dict[str, Callable[[NDArray[np.float32]], object]] = {
        "dense": lambda mixture: mixture,
        "flat": np.ravel,
        "sparse": lambda mixture: _sparse(mixture.ravel(), body.cutoff),
        "base64": lambda mixture: base64_of(mixture, body.dtype),
    }
    written = formats[body.format]
    return json_with(content, embeddings=([written(mixture)] for mixture in encoding.mixtures))


def _sparse(weights: NDArray[np.float32], cutoff: float) -> dict[str, NDArray[Any]]:
    (indices,) = np.nonzero(weights >= cutoff)
    return {"indices": indices, "values": weights[indices]}


@router.post(
    "/v1/embeddings",
    summary="Vectors of texts, for OpenAI's clients",
    response_model=OpenAIResponse,
    responses=documented_answers(),
)
async def openai_embeddings(body: OpenAIRequest, call: Called) -> Response:
    """Return vectors of unit length whose dot product is the metric, as OpenAI's clients expect."""
    manifest = call.service.manifest
    length = manifest.latent_dims * manifest.classes
    if body.dimensions not in (None, length):
        raise ApiError(
            "Validation", f"dimensions: this model's vectors have {length:,}; leave it out."
        )
    metric = call.service.metric(body.metric)
    encoding = await call.encode("input", body.input, lambda i: f"input[{i}]", body)
    return await call.compute(lambda: _openai_answer(encoding, metric, body, call))


def _openai_answer(encoding: Encoding, metric: Metric, body: OpenAIRequest, call: Call) -> Response:
    rows = vectors(metric, encoding.mixtures, call.service.centre).astype(np.float32)
    read = sum(min(count, call.service.manifest.max_tokens) for count in encoding.tokens)
    content = {
        "object": "list",
        "model": call.service.manifest.name,
        "usage": {"prompt_tokens": read, "total_tokens": read},
    }
    as_text = body.encoding_format == "base64"
    data: Iterable[list[object]] = (
        [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64_of(row, "float32") if as_text else row,
            }
        ]
        for index, row in enumerate(rows)
    )
    return json_with(content, data=data)
