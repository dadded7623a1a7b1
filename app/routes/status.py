"""`GET /health` and `GET /info`."""

from typing import get_args

from fastapi import APIRouter

from app import __version__
from app.routes.common import Loaded
from app.schemas import HealthResponse, InfoResponse
from model_store import Metric

router = APIRouter(tags=["status"])


@router.get("/health")
async def health() -> HealthResponse:
    """Answer while the server is alive, however busy the model is."""
    return HealthResponse(status="ok")


@router.get("/info")
async def info(service: Loaded) -> InfoResponse:
    """Describe the model being served, where it came from, and the limits on requests."""
    encoder, settings, manifest = service.encoder, service.settings, service.encoder.manifest
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
        max_input_length=manifest.max_tokens,
        max_client_batch_size=settings.max_inputs,
        max_body_bytes=settings.max_body_bytes,
        backbone=manifest.backbone,
        corpus=manifest.head.corpus,
        parity=manifest.parity,
        evaluation=dict(manifest.evaluation),
        version=__version__,
    )
