"""`POST /similarity`: sentence pairs in, similarities out."""

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from app.errors import documented
from app.routes.common import Loaded, Service, json
from app.schemas import SimilarityRequest, SimilarityResponse
from app.similarity import MetricError, similarity
from model_store import Metric

router = APIRouter(tags=["similarity"])


@router.post(
    "/similarity",
    response_model=SimilarityResponse,
    response_model_exclude_none=True,
    responses=documented("Empty", "TooLarge", "Validation", "Backend", "Overloaded"),
)
async def similarities(body: SimilarityRequest, service: Loaded) -> Response:
    """Score sentence pairs by every metric asked for; higher is always more similar."""
    texts = [text for pair in body.pairs for text in pair]
    service.check("pairs", texts, _place)
    if "centred" in body.metrics and service.encoder.centre is None:
        raise MetricError("Metric 'centred' needs a model that carries a centre.")
    return json(await service.run(lambda: _score(texts, body.metrics, service)))


def _place(index: int) -> str:
    return f"pairs[{index // 2}][{index % 2}]"


def _score(texts: list[str], metrics: list[Metric], service: Service) -> dict[str, Any]:
    encoding = service.encode(texts, _place)
    left, right = encoding.mixtures[::2], encoding.mixtures[1::2]  # [N, L, C] each
    # The model computes in float32: more digits would only look like more precision.
    scores = {
        metric: similarity(metric, left, right, service.encoder.centre).astype(np.float32)
        for metric in metrics
    }
    return {
        "model": service.model,
        "similarities": [
            {name: column[i] for name, column in scores.items()}
            | {"truncated": encoding.truncated[2 * i : 2 * i + 2]}
            for i in range(len(left))
        ],
    }
