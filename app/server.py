"""The ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from app import errors
from app.engine import Models
from app.keys import Keys, RequireKey
from app.limits import Admission
from app.observe import Metrics, Observe, tracing
from app.routes import (
    embed,
    evaluate,
    explain,
    openai,
    playground,
    rank,
    rerank,
    similarity,
    status,
    tei,
)
from app.routes.context import Service
from app.routes.route import ModelEndpoints, ModelRoute
from app.settings import Settings, load_settings
from lattemix import __version__

_DESCRIPTION = """\
Semantic similarity with latent categorical mixtures. A sentence's mixture is the average of its
tokens' latent distributions; the similarity of two sentences is the similarity of their mixtures.

Every response has the headers `x-request-id` and `x-total-time` (milliseconds). Responses of a
model also have `x-model`, `x-fingerprint` (a short hash of its weights), `x-tokenization-time`,
`x-queue-time`, `x-inference-time`, `x-compute-tokens` (tokens computed for this request) and
`x-truncated-inputs`.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Load the models and return the application; raise `LatteMixError` if that fails."""
    settings = settings or load_settings()
    keys = Keys.load(settings)
    metrics = Metrics()
    endpoint = settings.otlp_endpoint
    tracer = tracing.start(endpoint, __version__) if endpoint else None
    models = Models(settings, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(models.close)
            if tracer is not None:
                await asyncio.to_thread(tracer.close)

    # FastAPIOffline serves the scripts of /docs itself instead of linking to a CDN.
    app = FastAPIOffline(
        title="Latte-Mix",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,  # the target URL could be wrong behind a proxy
        # `Observe` does this, and never records a body.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = Service(settings, models, metrics)
    errors.install(app)
    # Only for the documentation: `RequireKey` checks the key before the body is read.
    bearer = [Depends(HTTPBearer(auto_error=False))] if keys else []
    model_routers = (similarity, embed, rank, explain, evaluate, openai, rerank, tei)
    routers = (*(routes.router for routes in model_routers), openai.models_router)
    for router in (*routers, explain.latent_router, status.router):
        app.include_router(router, dependencies=bearer)
    app.include_router(status.probes)
    if settings.playground:
        app.include_router(playground.router)
    # The last middleware added is the outermost.
    model_routes = [route for router in model_routers for route in router.router.routes]
    app.add_middleware(
        ModelEndpoints, routes=[r for r in model_routes if isinstance(r, ModelRoute)]
    )
    app.add_middleware(Admission, host=models.host, settings=settings)
    if keys:
        app.add_middleware(RequireKey, keys=keys, rate=settings.key_rate)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(Observe, metrics=metrics, tracer=tracer)
    return app
