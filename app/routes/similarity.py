"""`POST /similarity`: sentence pairs in, similarities out."""

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from app.errors import documented
from app.routes.common import Loaded, Service, json
from app.schemas import SimilarityRequest, SimilarityResponse
from app.similarity import similarity

router = APIRouter(tags=["similarity"])


@router.post(
    "/similarity",
    response_model=SimilarityResponse,
    response_model_exclude_none=True,
    responses=documented("Empty", "TooLarge", "Validation", "Backend", "Overloaded"),
)
async def similarities(body: SimilarityRequest, service: Loaded) -> Response:
    """Score sentence pairs by every metric asked for; higher is always more similar."""
    texts = [
        (f"pairs[{i}][{j}]", text)
        for i, pair in enumerate(body.pairs)
        for j, text in enumerate(pair)
    ]
    service.check("pairs", texts)
    return json(await service.run(lambda: _score(body, service)))


def _score(body: SimilarityRequest, service: Service) -> dict[str, Any]:
    encoder = service.encoder
    encoding = encoder.encode([text for pair in body.pairs for text in pair])
    left, right = encoding.mixtures[::2], encoding.mixtures[1::2]  # [N, L, C] each
    # The model computes in float32: more digits would only look like more precision.
    scores = {
        metric: similarity(metric, left, right, encoder.centre).astype(np.float32)
        for metric in body.metrics
    }
    return {
        "model": service.model,
        "similarities": [
            {name: column[i] for name, column in scores.items()}
            | {"truncated": encoding.truncated[2 * i : 2 * i + 2]}
            for i in range(len(body.pairs))
        ],
    }
