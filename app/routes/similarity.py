"""`POST /similarity`: similarities of sentence pairs."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Body, Response
from fastapi.openapi.models import Example
from numpy.typing import NDArray

from app.routes.context import Context, RequestContext
from app.routes.route import ModelRoute
from app.routes.serialize import document_model_responses, json_response
from app.schemas.similarity import (
    AnySimilarityRequest,
    SimilarityRequest,
    SourceParameters,
    SourceRequest,
)
from lattemix.calibrated import calibrated
from lattemix.responses import SimilarityResponse
from lattemix.similarity import matrix, similarity

router = APIRouter(tags=["similarity"], route_class=ModelRoute)

_A, _B = "A man is eating.", "Someone is having lunch."
_EXAMPLES: dict[str, Example] = {
    "pairs": {"value": {"pairs": [[_A, _B]]}},
    "pairs by several metrics": {"value": {"pairs": [[_A, _B]], "metrics": ["cosine", "js"]}},
    "source and sentences (Hugging Face)": {
        "value": {"inputs": {"source_sentence": _A, "sentences": [_B, "The sea was calm."]}}
    },
}


@router.post(
    "/similarity",
    summary="Similarities of sentence pairs",
    response_model=SimilarityResponse | list[float],
    responses=document_model_responses(),
)
async def similarities(
    body: Annotated[AnySimilarityRequest, Body(openapi_examples=_EXAMPLES)], context: Context
) -> Response:
    """Compare the sentences of each pair. Higher is more similar.

    With the body of Hugging Face's sentence-similarity task, compare one sentence with several and
    return their similarities as a plain list.
    """
    if isinstance(body, SourceRequest):
        return await compare_source(body, context)
    return await _compare_pairs(body, context)


async def _compare_pairs(body: SimilarityRequest, context: RequestContext) -> Response:
    model = context.model
    metrics = [model.metric(metric) for metric in body.metrics or (None,)]
    texts = [text for pair in body.pairs for text in pair]
    encoding = await context.encode("pairs", texts, lambda i: f"pairs[{i // 2}][{i % 2}]", body)

    def respond() -> Response:
        a, b = encoding.mixtures[::2], encoding.mixtures[1::2]  # [N, L, C] each
        # The model computes in float32: more digits would only look like more precision.
        scores: dict[str, NDArray[np.float32]] = {
            metric: similarity(metric, a, b, model.centre).astype(np.float32) for metric in metrics
        }
        columns = {**scores, **calibrated(model.calibration, scores)}
        rows = [{name: column[i] for name, column in columns.items()} for i in range(len(a))]
        tokens, truncated = encoding.tokens, encoding.truncated
        return json_response(
            {
                **model.identity,
                "metric": metrics[0],
                "similarities": rows,
                "tokens": list(zip(tokens[::2], tokens[1::2], strict=True)),
                "truncated": list(zip(truncated[::2], truncated[1::2], strict=True)),
            }
        )

    return await context.compute(respond)


async def compare_source(body: SourceRequest, context: RequestContext) -> Response:
    """Compare one sentence with several."""

    def name(index: int) -> str:
        return f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence"

    inputs, parameters = body.inputs, body.parameters or SourceParameters()
    metric = context.model.metric(parameters.metric)
    texts = [inputs.source_sentence, *inputs.sentences] if inputs.sentences else []
    encoding = await context.encode("inputs.sentences", texts, name, parameters)

    def respond() -> Response:
        mixtures = encoding.mixtures
        scores = matrix(metric, mixtures[:1], mixtures[1:], context.model.centre)  # [1, N]
        return json_response(scores[0])

    return await context.compute(respond)
