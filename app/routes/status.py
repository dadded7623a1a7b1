"""`GET /health`, `/ready`, `/info` and `/metrics`."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from app.engine.errors import UnavailableError
from app.errors import document
from app.observe.metrics import CONTENT_TYPE
from app.routes.context import Loaded, choose_model
from app.schemas.common import MODEL
from lattemix.errors import InferenceError
from lattemix.info import model_info
from lattemix.responses import (
    EmbeddingModel,
    HealthResponse,
    InfoResponse,
    ModelType,
    ReadyResponse,
)

router = APIRouter(tags=["status"])
probes = APIRouter(tags=["status"])  # need no key


@probes.head("/health", include_in_schema=False)
@probes.get("/health", summary="Whether the server is alive")
async def health() -> HealthResponse:
    """Respond while the server is alive, however busy the model is."""
    return HealthResponse(status="ok")


@probes.head("/ready", include_in_schema=False)
@probes.get("/ready", summary="Whether the models respond", responses=document("Unhealthy"))
async def ready(service: Loaded) -> ReadyResponse:
    """Respond if every model ran successfully in the last 5 seconds, or does so now."""
    try:
        await service.models.check()
    except InferenceError as error:
        raise UnavailableError(str(error)) from error
    return ReadyResponse(status="ready")


@probes.head("/metrics", include_in_schema=False)
@probes.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
async def metrics(service: Loaded) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE)


@router.head("/info", include_in_schema=False)
@router.get(
    "/info",
    summary="A model and the limits on requests",
    responses=document("Unauthorized", "NotFound"),
)
async def info(
    request: Request,
    service: Loaded,
    model: Annotated[str | None, Query(description=MODEL)] = None,
) -> InfoResponse:
    """Describe a served model, its origin and the limits on requests."""
    settings, served = service.settings, choose_model(request, model)
    described = model_info(served.engine.encoder).model_dump()
    return InfoResponse(
        **(described | served.identity),
        models=[each.name for each in service.models],
        max_characters=settings.max_characters,
        max_body_bytes=settings.max_body_bytes,
        model_type=ModelType(embedding=EmbeddingModel(pooling="mixture")),
        max_client_batch_size=settings.max_inputs,
        max_concurrent_requests=settings.max_requests,
        tokenization_workers=1,
        served_model_name=served.name,
        max_batch_requests=None,
        sha=None,
        docker_label=None,
        auto_truncate=settings.truncate != "error",
    )
