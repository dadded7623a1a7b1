"""`POST /rank` and `/matrix`: one sentence against many, or all against all."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from app.routes.context import Context, RequestContext
from app.routes.route import ModelRoute
from app.routes.serialize import (
    document_model_responses,
    json_response,
    npy_response,
    row_chunks,
    wants_npy,
)
from app.schemas.rank import MatrixRequest, RankRequest
from app.schemas.rerank import RerankRequest, TeiRerankRequest
from lattemix.calibrated import PLURALS, calibrated, score_threshold
from lattemix.encodings import Encoding
from lattemix.ranking import order, pairs_above
from lattemix.responses import MatrixResponse, RankResponse
from lattemix.similarity import matrix
from model_store import Metric

router = APIRouter(tags=["rank"], route_class=ModelRoute)

Scores = NDArray[np.float32]


@router.post(
    "/rank",
    summary="Texts ordered by similarity to a query",
    response_model=RankResponse,
    responses=document_model_responses(),
)
async def rank(body: RankRequest, context: Context) -> Response:
    """Order texts by their similarity to a query, most similar first."""
    metric, encoding, scores = await compare(context, body, body.query, "texts", body.texts)
    tokens, truncated = encoding.tokens, encoding.truncated
    rows = results(scores, body.texts if body.return_texts else None)[: body.top_k]
    for name, values in calibrated(context.model.calibration, {metric: scores}).items():
        rows = [row | {name: values[row["index"]]} for row in rows]
    return json_response(
        {
            **context.model.identity,
            "metric": metric,
            "results": rows,
            "tokens": {"query": tokens[0], "texts": tokens[1:]},
            "truncated": {"query": truncated[0], "texts": truncated[1:]},
        }
    )


@router.post(
    "/matrix",
    summary="Most similar pairs of a list",
    response_model=MatrixResponse,
    responses=document_model_responses(array="Similarities [N, N]."),
)
async def compare_all(body: MatrixRequest, context: Context) -> Response:
    """Compare all sentences with each other and return the pairs, most similar first.

    Useful to find near-duplicates; for longer lists use the command `lattemix dedup`. With
    `Accept: application/x-npy`, return the whole matrix.
    """
    context.check_count("inputs", body.inputs, "de-duplicate longer lists with `lattemix dedup`")
    model, npy = context.model, wants_npy(context.request)
    metric = model.metric(body.metric)
    threshold = score_threshold(body.threshold, body.threshold_on, model.calibration, metric)
    encoding = await context.encode("inputs", body.inputs, lambda i: f"inputs[{i}]", body)

    def respond() -> Response:
        table = matrix(metric, encoding.mixtures, encoding.mixtures, model.centre)  # [N, N]
        if npy:
            return npy_response(table)
        pairs, scores = pairs_above(table, threshold)  # [P, 2], [P]
        content = {
            **model.identity,
            "metric": metric,
            "count": len(scores),
            "tokens": encoding.tokens,
            "truncated": encoding.truncated,
        }
        pairs, scores = pairs[: body.top_k], scores[: body.top_k]
        meanings = calibrated(model.calibration, {metric: scores})
        lists = {"scores": scores} | {PLURALS[name]: values for name, values in meanings.items()}
        chunks = {name: row_chunks(values) for name, values in lists.items()}
        return json_response(content, pairs=row_chunks(pairs), **chunks)

    return await context.compute(respond)


async def compare(
    context: RequestContext,
    body: RankRequest | RerankRequest | TeiRerankRequest,
    query: str,
    field: str,
    texts: Sequence[str],
) -> tuple[Metric, Encoding, Scores]:
    """Return the metric, the encoding of query and texts, and the texts' scores."""

    def name(index: int) -> str:
        return f"{field}[{index - 1}]" if index else "query"

    metric = context.model.metric(body.metric)
    sentences = [query, *texts] if texts else []
    encoding = await context.encode(field, sentences, name, body)
    mixtures, centre = encoding.mixtures, context.model.centre
    table = await context.compute(lambda: matrix(metric, mixtures[:1], mixtures[1:], centre))
    return metric, encoding, table[0]


def results(scores: Scores, texts: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return index and score, highest score first, with the text if texts are given."""
    return [
        {"index": i, "score": scores[i]} | ({"text": texts[i]} if texts else {})
        for i in order(scores).tolist()
    ]
