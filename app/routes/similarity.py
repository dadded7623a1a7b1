"""`POST /similarity`: sentence pairs in, similarities out."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Body, Response
from fastapi.openapi.models import Example

from app.routes.answers import documented_answers, json
from app.routes.common import Call, Called
from app.routes.route import ModelRoute
from app.schemas.similarity import (
    AnySimilarityRequest,
    SimilarityRequest,
    SourceParameters,
    SourceRequest,
)
from lattemix.encoder import Encoding
from lattemix.responses import SimilarityResponse
from lattemix.similarity import matrix, similarity
from model_store import Metric

router = APIRouter(tags=["similarity"], route_class=ModelRoute)

_A, _B = "A man is eating.", "Someone is having lunch."
_EXAMPLES: dict[str, Example] = {
    "pairs": {"value": {"pairs": [[_A, _B]], "metrics": ["cosine", "js"]}},
    "source and sentences, as Hugging Face clients send them": {
        "value": {"inputs": {"source_sentence": _A, "sentences": [_B, "The sea was calm."]}}
    },
}


@router.post(
    "/similarity",
    summary="Similarities of sentence pairs",
    response_model=SimilarityResponse | list[float],
    response_model_exclude_none=True,
    responses=documented_answers(),
)
async def similarities(
    body: Annotated[AnySimilarityRequest, Body(openapi_examples=_EXAMPLES)], call: Called
) -> Response:
    """Score sentence pairs by every metric asked for; higher is always more similar.

    With the body of Hugging Face's sentence-similarity task, compare one sentence with several and
    answer their similarities as a bare list.
    """
    if isinstance(body, SourceRequest):
        return await _compare_source(body, call)
    return await _compare_pairs(body, call)


async def _compare_pairs(body: SimilarityRequest, call: Call) -> Response:
    metrics = [call.service.metric(asked) for asked in body.metrics]
    texts = [text for pair in body.pairs for text in pair]
    encoding = await call.encode("pairs", texts, lambda i: f"pairs[{i // 2}][{i % 2}]", body)
    return await call.compute(lambda: _pairs_answer(encoding, metrics, call))


def _pairs_answer(encoding: Encoding, metrics: list[Metric], call: Call) -> Response:
    a, b = encoding.mixtures[::2], encoding.mixtures[1::2]  # [N, L, C] each
    # The model computes in float32: more digits would only look like more precision.
    scores = {
        metric: similarity(metric, a, b, call.service.centre).astype(np.float32)
        for metric in metrics
    }
    rows = [
        {name: column[i] for name, column in scores.items()}
        | {"truncated": encoding.truncated[2 * i : 2 * i + 2]}
        for i in range(len(a))
    ]
    tokens = list(zip(encoding.tokens[::2], encoding.tokens[1::2], strict=True))
    return json({"model": call.service.manifest.name, "similarities": rows, "tokens": tokens})


async def _compare_source(body: SourceRequest, call: Call) -> Response:
    def place(index: int) -> str:
        return f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence"

    parameters = body.parameters or SourceParameters()
    metric = call.service.metric(parameters.metric)
    inputs = body.inputs
    texts = [inputs.source_sentence, *inputs.sentences] if inputs.sentences else []
    encoding = await call.encode("inputs.sentences", texts, place, parameters)

    def score() -> Response:
        mixtures = encoding.mixtures
        return json(matrix(metric, mixtures[:1], mixtures[1:], call.service.centre)[0])

    return await call.compute(score)
