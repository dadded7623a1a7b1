"""`POST /explain` and `GET /latents/{dim}/{class}`: score breakdown and latent classes."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.errors import ApiError, document
from app.routes.context import Context, choose_model
from app.routes.route import ModelRoute
from app.routes.serialize import document_model_responses, json_response
from app.schemas.common import MODEL
from app.schemas.explain import ExplainRequest
from lattemix.explain import explain
from lattemix.responses import Explanation, LatentResponse, WordShare

router = APIRouter(tags=["explain"], route_class=ModelRoute)
latent_router = APIRouter(tags=["explain"])


@router.post(
    "/explain",
    summary="Score breakdown of a pair",
    response_model=Explanation,
    responses=document_model_responses(),
)
async def explain_pair(body: ExplainRequest, context: Context) -> Response:
    """Break the similarity of a pair down by token, word and latent dim.

    The contributions of each sentence's tokens sum to the similarity, and so do those of the dims.
    """
    model = context.model
    metric = model.metric(body.metric)
    a, b = await context.encode_tokens("pair", body.pair, lambda i: f"pair[{i}]", body)

    def respond() -> Response:
        content = explain(
            metric,
            (body.pair[0], body.pair[1]),
            (a, b),
            model.centre,
            model.engine.encoder.latents,
            body.latents,
            body.token_alignment,
            body.token_mixtures,
        )
        return json_response({**model.identity, **content})

    return await context.compute(respond, len(a.spans) + len(b.spans))


@latent_router.get(
    "/latents/{dim}/{class}",
    summary="Words of a latent class",
    responses=document("Unauthorized", "NotFound", "Validation"),
)
async def latent(
    request: Request,
    dim: int,
    index: Annotated[int, Path(alias="class")],
    model: Annotated[str | None, Query(description=MODEL)] = None,
) -> LatentResponse:
    """Return the words of the training corpus most typical of one class of one latent dim."""
    served = choose_model(request, model)
    classes, manifest = served.engine.encoder.latents, served.manifest
    if classes is None:
        raise ApiError("NotFound", f"{manifest.name} has no words for its latent classes.")
    limits = {"dim": (dim, manifest.latent_dims), "class": (index, manifest.classes)}
    for name, (value, count) in limits.items():
        if not 0 <= value < count:
            raise ApiError(
                "NotFound", f"{name} is {value}, but {manifest.name} has 0 to {count - 1}."
            )
    described = classes[dim][index]
    return LatentResponse(
        **served.identity,
        dim=dim,
        index=index,
        usage=described.usage,
        words=[WordShare(word=word, share=share) for word, share in described.words.items()],
    )
