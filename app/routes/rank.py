"""`POST /rank`, `/rerank` and `/matrix`: one sentence against many, and many against each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from app.routes.answers import documented_answers, in_parts, json, json_with, npy, wants_npy
from app.routes.common import Call, Called
from app.routes.route import ModelRoute
from app.schemas.rank import MatrixRequest, RankRequest, Reranked, RerankRequest
from lattemix.encoder import Encoding
from lattemix.ranking import order, pairs_above
from lattemix.responses import MatrixResponse, RankResponse
from lattemix.similarity import matrix
from model_store import Metric

router = APIRouter(tags=["rank"], route_class=ModelRoute)

Scores = NDArray[np.float32]


@router.post(
    "/rank",
    summary="Candidates in order of their similarity to a query",
    response_model=RankResponse,
    response_model_exclude_none=True,
    responses=documented_answers(),
)
async def rank(body: RankRequest, call: Called) -> Response:
    """Put candidates in order of their similarity to a query, the most similar first."""
    metric, encoding, scores = await _compare(call, body, "candidates", body.candidates)
    texts = body.candidates if body.return_texts else None
    results = [
        ranked | {"truncated": encoding.truncated[ranked["index"] + 1]}
        for ranked in _in_order(scores, texts)[: body.top_k]
    ]
    return json(
        {
            "model": call.service.manifest.name,
            "metric": metric,
            "query_truncated": encoding.truncated[0],
            "results": results,
        }
    )


@router.post(
    "/rerank",
    summary="The same, with the body of text-embeddings-inference",
    response_model=list[Reranked],
    response_model_exclude_none=True,
    responses=documented_answers(),
)
async def rerank(body: RerankRequest, call: Called) -> Response:
    """Do what `/rank` does, with the body and the answer of text-embeddings-inference."""
    _, _, scores = await _compare(call, body, "texts", body.texts)
    return json(_in_order(scores, body.texts if body.return_text else None))


@router.post(
    "/matrix",
    summary="The most similar pairs of a list",
    response_model=MatrixResponse,
    responses=documented_answers(array="Similarities [N, N]."),
)
async def all_pairs(body: MatrixRequest, call: Called) -> Response:
    """Compare every two sentences of a list, to find duplicates: the most similar pairs first.

    Asked for `application/x-npy`, answer the whole matrix instead.
    """
    metric = call.service.metric(body.metric)
    encoding = await call.encode("inputs", body.inputs, lambda i: f"inputs[{i}]", body)
    whole = wants_npy(call.request)

    def answer() -> Response:
        mixtures = encoding.mixtures
        scores = matrix(metric, mixtures, mixtures, call.service.centre)  # [N, N]
        return npy(scores) if whole else _pairs(scores, metric, encoding, body, call)

    return await call.compute(answer)


def _pairs(
    table: Scores, metric: Metric, encoding: Encoding, body: MatrixRequest, call: Call
) -> Response:
    pairs, scores = pairs_above(table, body.threshold)  # [P, 2], [P]
    content = {
        "model": call.service.manifest.name,
        "metric": metric,
        "count": len(scores),
        "tokens": encoding.tokens,
        "truncated": encoding.truncated,
    }
    shown = slice(body.top_k)
    return json_with(content, pairs=in_parts(pairs[shown]), scores=in_parts(scores[shown]))


async def _compare(
    call: Call, body: RankRequest | RerankRequest, field: str, others: Sequence[str]
) -> tuple[Metric, Encoding, Scores]:
    """Score the others by their similarity to the query, which is encoded first."""

    def place(index: int) -> str:
        return f"{field}[{index - 1}]" if index else "query"

    metric = call.service.metric(body.metric)
    texts = [body.query, *others] if others else []
    encoding = await call.encode(field, texts, place, body)
    query, rest = encoding.mixtures[:1], encoding.mixtures[1:]
    table = await call.compute(lambda: matrix(metric, query, rest, call.service.centre))
    return metric, encoding, table[0]


def _in_order(scores: Scores, texts: Sequence[str] | None) -> list[dict[str, Any]]:
    """Places and scores, the highest first, with their texts if there are any."""
    return [
        {"index": int(i), "score": scores[i]} | ({"text": texts[i]} if texts else {})
        for i in order(scores)
    ]
