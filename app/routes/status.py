"""`GET /health`, `/ready`, `/info` and `/metrics`."""

from typing import get_args

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from app import __version__
from app.engine.errors import InferenceError, UnavailableError
from app.errors import documented
from app.observe.metrics import CONTENT_TYPE
from app.routes.common import Loaded
from app.schemas.status import (
    EmbeddingModel,
    HealthResponse,
    InfoResponse,
    ModelType,
    ReadyResponse,
)
from model_store import Metric

router = APIRouter(tags=["status"])
probes = APIRouter(tags=["status"])  # open to everyone


@probes.head("/health", include_in_schema=False)
@probes.get("/health", summary="Whether the server is alive")
async def health() -> HealthResponse:
    """Answer while the server is alive, however busy the model is."""
    return HealthResponse(status="ok")


@probes.head("/ready", include_in_schema=False)
@probes.get("/ready", summary="Whether the model answers", responses=documented("Unhealthy"))
async def ready(service: Loaded) -> ReadyResponse:
    """Answer if the model does: it has lately, or is asked now."""
    try:
        await service.engine.check()
    except InferenceError as error:
        raise UnavailableError(str(error)) from error
    return ReadyResponse(status="ready")


@probes.head("/metrics", include_in_schema=False)
@probes.get("/metrics", summary="Measurements, for Prometheus", response_class=PlainTextResponse)
async def metrics(service: Loaded) -> Response:
    """What has been counted and measured, for Prometheus."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE)


@router.head("/info", include_in_schema=False)
@router.get("/info", summary="The model and the limits", responses=documented("Unauthorized"))
async def info(service: Loaded) -> InfoResponse:
    """Describe the model being served, where it came from, and the limits on requests."""
    encoder, settings, manifest = service.engine.encoder, service.settings, service.manifest
    metrics = [m for m in get_args(Metric) if m != "centred" or encoder.centre is not None]
    return InfoResponse(
        model=manifest.name,
        precision=manifest.precision,
        precision_reason=encoder.reason,
        provider=encoder.provider,
        latent_dims=manifest.latent_dims,
        classes=manifest.classes,
        temperature=manifest.temperature,
        metrics=metrics,
        recommended_metric=manifest.recommended_metric,
        max_characters=settings.max_characters,
        max_body_bytes=settings.max_body_bytes,
        backbone=manifest.backbone,
        corpus=manifest.head.corpus,
        parity=manifest.parity,
        evaluation=dict(manifest.evaluation),
        model_id=manifest.reference,
        model_sha=manifest.files["model.onnx"].sha256,
        model_dtype=manifest.precision,
        model_type=ModelType(embedding=EmbeddingModel(pooling="mixture")),
        max_input_length=manifest.max_tokens,
        max_batch_tokens=encoder.token_budget,
        max_client_batch_size=settings.max_inputs,
        max_concurrent_requests=settings.max_requests,
        tokenization_workers=1,
        auto_truncate=True,
        version=__version__,
    )
