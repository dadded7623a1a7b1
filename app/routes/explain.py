"""`POST /explain` and `GET /latents/{dim}/{class}`: score breakdown and latent classes."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from app.errors import ApiError, documented
from app.routes.answers import documented_answers, json
from app.routes.common import Called, Loaded
from app.routes.route import ModelRoute
from app.schemas.explain import ExplainRequest, LatentResponse, WordShare
from lattemix.explain import explain
from lattemix.responses import Explanation

router = APIRouter(tags=["explain"], route_class=ModelRoute)
latents = APIRouter(tags=["explain"])


@router.post(
    "/explain",
    summary="Score breakdown of a pair",
    response_model=Explanation,
    response_model_exclude_none=True,
    responses=documented_answers(),
)
async def explain_pair(body: ExplainRequest, call: Called) -> Response:
    """Break the similarity of a pair down by token, word and latent dim.

    The contributions of each sentence's tokens sum to the similarity, and so do those of the dims.
    """
    service = call.service
    metric = service.metric(body.metric)
    a, b = await call.encode_tokens("pair", body.pair, lambda i: f"pair[{i}]", body)

    def respond() -> Response:
        content: dict[str, Any] = explain(
            metric,
            (body.pair[0], body.pair[1]),
            (a, b),
            service.centre,
            service.engine.encoder.latents,
            body.latents,
            body.token_alignment,
            body.token_mixtures,
        )
        return json({"model": service.manifest.name, **content})

    return await call.compute(respond, len(a.spans) + len(b.spans))


@latents.get(
    "/latents/{dim}/{class}",
    summary="Words of a latent class",
    responses=documented("Unauthorized", "NotFound", "Validation"),
)
async def latent(
    service: Loaded, dim: int, index: Annotated[int, Path(alias="class")]
) -> LatentResponse:
    """Return the words of the training corpus most typical of one class of one latent dim."""
    known, manifest = service.engine.encoder.latents, service.manifest
    if known is None:
        raise ApiError("NotFound", f"{manifest.name} does not say what its latent classes mean.")
    limits = {"dim": (dim, manifest.latent_dims), "class": (index, manifest.classes)}
    for name, (value, count) in limits.items():
        if not 0 <= value < count:
            raise ApiError(
                "NotFound", f"{name} is {value}, but {manifest.name} has 0 to {count - 1}."
            )
    described = known[dim][index]
    return LatentResponse(
        model=manifest.name,
        dim=dim,
        index=index,
        usage=described.usage,
        words=[WordShare(word=word, share=share) for word, share in described.words.items()],
    )
