"""`POST /explain` and `GET /latents/{dim}/{class}`: why two sentences are similar."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Response
from numpy.typing import NDArray

from app.engine import Dissection
from app.errors import ApiError, documented
from app.explain import Explanation, Word, explain, met, word_mixtures, words
from app.routes.answers import base64_of, documented_answers, json
from app.routes.common import Call, Called, Loaded, Service
from app.routes.route import ModelRoute
from app.schemas.explain import ExplainRequest, ExplainResponse, LatentResponse, WordShare
from app.similarity import matrix
from model_store import Metric

router = APIRouter(tags=["explain"], route_class=ModelRoute)
latents = APIRouter(tags=["explain"])

_SHOWN_WORDS = 5

Floats = NDArray[np.floating[Any]]


@router.post(
    "/explain",
    summary="Why two sentences are as similar as they are",
    response_model=ExplainResponse,
    response_model_exclude_none=True,
    responses=documented_answers(),
)
async def explain_pair(body: ExplainRequest, call: Called) -> Response:
    """Take the similarity of a pair apart, by tokens, by words and by latent dims.

    What the tokens of either sentence add to it, and what the latent dims do, adds up to it.
    """
    metric = call.service.metric(body.metric)
    a, b = await call.dissect("pair", body.pair, lambda i: f"pair[{i}]", body)
    return await call.compute(
        lambda: json(_answer(metric, a, b, body, call)), len(a.pieces) + len(b.pieces)
    )


@latents.get(
    "/latents/{dim}/{class}",
    summary="What a latent class means",
    responses=documented("Unauthorized", "NotFound", "Validation"),
)
async def latent(
    service: Loaded, dim: int, index: Annotated[int, Path(alias="class")]
) -> LatentResponse:
    """The words of the training corpus that are most in one class of one latent dim."""
    known, manifest = service.engine.encoder.latents, service.manifest
    if known is None:
        raise ApiError("NotFound", f"{manifest.name} does not say what its latent classes mean.")
    limits = {"dim": (dim, manifest.latent_dims), "class": (index, manifest.classes)}
    for name, (value, count) in limits.items():
        if not 0 <= value < count:
            raise ApiError(
                "NotFound",
                f"{name} is {value}, but those of {manifest.name} go from 0 to {count - 1}.",
            )
    found = known[dim][index]
    shares = [WordShare(word=word, share=share) for word, share in found.words.items()]
    return LatentResponse(
        model=manifest.name, dim=dim, index=index, usage=found.usage, words=shares
    )


def _answer(
    metric: Metric, a: Dissection, b: Dissection, body: ExplainRequest, call: Call
) -> dict[str, Any]:
    service = call.service
    explanation = explain(metric, a, b, service.centre)
    words_a, words_b = words(a.pieces), words(b.pieces)
    sides = (
        (body.pair[0], a, explanation.a, words_a),
        (body.pair[1], b, explanation.b, words_b),
    )
    side_a, side_b = (_sentence(*side, body.token_mixtures) for side in sides)
    by_word = matrix(  # [W, X]
        metric, word_mixtures(a, words_a), word_mixtures(b, words_b), service.centre
    )
    weights = [word.weight(a) for word in words_a], [word.weight(b) for word in words_b]
    links = [{"a": i, "b": j, "similarity": by_word[i, j]} for i, j in met(by_word, *weights)]
    alignment = {"words": by_word, "links": links}
    if body.token_alignment:
        alignment["tokens"] = matrix(metric, a.mixtures, b.mixtures, service.centre)  # [S, T]
    return {
        "model": service.manifest.name,
        "metric": metric,
        "similarity": np.float32(explanation.similarity),
        "a": side_a,
        "b": side_b,
        "alignment": alignment,
        "latents": _dims(explanation, a.mixture, b.mixture, body.latents, service),
    }


def _sentence(
    text: str, read: Dissection, contributions: Floats, found: list[Word], mixtures: bool
) -> dict[str, Any]:
    """One sentence's side of the answer."""
    amounts = contributions.astype(np.float32)
    word_of = {token: place for place, word in enumerate(found) for token in word.tokens}
    tokens = [
        {
            **piece._asdict(),
            "word": word_of.get(place),
            "weight": read.weights[place],
            "contribution": amounts[place],
        }
        for place, piece in enumerate(read.pieces)
    ]
    whole = [
        {
            "text": text[word.start : word.end],
            "start": word.start,
            "end": word.end,
            "tokens": list(word.tokens),
            "contribution": np.float32(contributions[list(word.tokens)].sum()),
        }
        for word in found
    ]
    side = {
        "tokens": tokens,
        "words": whole,
        "total_tokens": read.tokens,
        "truncated": read.truncated,
    }
    return side | ({"mixtures": base64_of(read.mixtures)} if mixtures else {})


def _dims(
    explanation: Explanation, a: Floats, b: Floats, count: int, service: Service
) -> dict[str, Any]:
    """The latent dims that add most to the similarity, and those that add least."""
    known = service.engine.encoder.latents

    def lively(mixture: Floats, dim: int) -> dict[str, Any]:
        index = int(mixture[dim].argmax())
        about = {"index": index, "share": mixture[dim, index]}
        if known is not None:
            about["words"] = list(known[dim][index].words)[:_SHOWN_WORDS]
        return about

    def described(dim: int) -> dict[str, Any]:
        return {
            "dim": dim,
            "contribution": np.float32(explanation.dims[dim]),
            "a": lively(a, dim),
            "b": lively(b, dim),
        }

    order = [int(dim) for dim in np.argsort(-explanation.dims, kind="stable")]
    return {
        "agree": [described(dim) for dim in order[:count]],
        "disagree": [described(dim) for dim in order[::-1][:count]],
    }
