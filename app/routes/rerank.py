"""Rerankers of other services: `/rerank`, `/v1/rerank`, `/v2/rerank` and `/v1/score`."""

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from app.errors import ApiError
from app.routes.context import Context
from app.routes.rank import compare, results
from app.routes.route import ModelRoute
from app.routes.serialize import document_model_responses, json_response
from app.routes.vectors import usage
from app.schemas.rerank import (
    AnyRerankRequest,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
    TeiRerankResult,
)
from lattemix.similarity import matrix, similarity

router = APIRouter(tags=["rerank"], route_class=ModelRoute)


@router.post(
    "/rerank",
    summary="Texts ordered by similarity to a query, for text-embeddings-inference clients",
    response_model=list[TeiRerankResult] | RerankResponse,
    responses=document_model_responses(),
)
async def any_rerank(body: AnyRerankRequest, context: Context) -> Response:
    """Like `/rank`, with the request and response of text-embeddings-inference.

    With `documents` instead of `texts`, like `/v1/rerank`.
    """
    if isinstance(body, RerankRequest):
        return await rerank(body, context)
    _, _, scores = await compare(context, body, body.query, "texts", body.texts)
    found = results(scores, body.texts if body.return_text else None)
    return json_response(found[: body.top_n or None])


@router.post(
    "/v1/rerank",
    summary="Documents ordered by similarity to a query, for Jina, vLLM and Cohere v1 clients",
    response_model=RerankResponse,
    responses=document_model_responses("/v1/"),
)
@router.post(
    "/v2/rerank",
    summary="Documents ordered by similarity to a query, for Cohere clients",
    response_model=RerankResponse,
    responses=document_model_responses("/v2/"),
)
async def rerank(body: RerankRequest, context: Context) -> Response:
    """Order documents by their similarity to a query, most similar first."""
    texts = [document.text for document in body.documents]
    _, encoding, scores = await compare(context, body, body.query, "documents", texts)
    found: list[dict[str, Any]] = [
        {"index": result["index"], "relevance_score": result["score"]}
        | ({"document": {"text": texts[result["index"]]}} if body.return_documents else {})
        for result in results(scores)[: body.top_n or None]
    ]
    version = "2" if context.request.url.path.endswith("/v2/rerank") else "1"
    content = {
        "id": context.trace.request_id,
        **context.model.identity,
        "results": found,
        "meta": {"api_version": {"version": version}, "billed_units": {"search_units": 1}},
        "usage": usage(context.model, encoding),
    }
    return json_response(content)


@router.post(
    "/v1/score",
    summary="Similarities of pairs, for vLLM clients",
    response_model=ScoreResponse,
    responses=document_model_responses("/v1/"),
)
async def score(body: ScoreRequest, context: Context) -> Response:
    """Compare each text of `text_1` with the text of `text_2` at the same position.

    A single `text_1` is compared with every `text_2`.
    """
    model, metric = context.model, context.model.metric(body.metric)
    a, b = body.text_1, body.text_2
    if a and b and len(a) not in (1, len(b)):
        raise ApiError(
            "Validation",
            f"text_2 holds {len(b):,} texts, and text_1 {len(a):,}: send as many, or one text_1.",
            field="text_2",
        )

    def name(index: int) -> str:
        return f"text_1[{index}]" if index < len(a) else f"text_2[{index - len(a)}]"

    texts = [*a, *b] if a and b else []
    encoding = await context.encode("text_2" if a else "text_1", texts, name, body)

    def respond() -> Response:
        left, right = encoding.mixtures[: len(a)], encoding.mixtures[len(a) :]
        if len(a) == 1:
            scores = matrix(metric, left, right, model.centre)[0]
        else:
            scores = similarity(metric, left, right, model.centre).astype(np.float32)
        content = {
            "id": context.trace.request_id,
            "object": "list",
            "created": context.created,
            **model.identity,
            "data": [
                {"index": index, "object": "score", "score": value}
                for index, value in enumerate(scores)
            ],
            "usage": usage(model, encoding),
        }
        return json_response(content)

    return await context.compute(respond)
