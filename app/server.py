"""The application: settings and a loaded model in, an ASGI app out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from app import errors
from app.engine import Engine
from app.keys import Keys, RequireKey
from app.limits import Admission
from app.observe import Metrics, Observe, tracing
from app.routes import embed, explain, playground, rank, similarity, status
from app.routes.common import Service
from app.routes.route import Shortcut
from app.settings import Settings, load_settings
from lattemix import __version__
from lattemix.encoder import Encoder

_DESCRIPTION = """\
Semantic similarity with latent categorical mixtures. A sentence is represented by the average of
its tokens' latent distributions; two sentences are compared by comparing those mixtures.

Every answer carries `x-request-id` and, in milliseconds, `x-total-time`; those of the model also
`x-tokenization-time`, `x-queue-time`, `x-inference-time`, `x-compute-tokens` (computed for this
request) and `x-truncated-inputs`.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Load the model and return the service; raise `LatteMixError` if it cannot be served."""
    settings = settings or load_settings()
    keys = Keys.load(settings)
    metrics = Metrics()
    endpoint = settings.otlp_endpoint
    tracer = tracing.start(endpoint, __version__) if endpoint else None
    engine = Engine(Encoder.load(settings), settings, metrics)
    encoder, manifest = engine.encoder, engine.encoder.manifest
    metrics.describe(manifest.name, manifest.precision, encoder.provider, __version__)
    metrics.watch(
        queue_sentences=lambda: engine.queue.sentences,
        queue_tokens=lambda: engine.queue.tokens,
        cache_bytes=lambda: engine.cache.used_bytes,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(engine.close)
            if tracer is not None:
                await asyncio.to_thread(tracer.close)

    # Its pages of documentation bring their scripts along instead of fetching them from others.
    app = FastAPIOffline(
        title="Latte-Mix",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,  # to an address that a proxy in front may not have
        # `Observe` does this, and says nothing of what is in a body.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = Service(settings, engine, metrics)
    errors.install(app)
    # Said here for the documentation; `RequireKey` asks for it, before a body is read.
    bearer = [Depends(HTTPBearer(auto_error=False))] if keys else []
    of_model = (similarity.router, embed.router, rank.router, explain.router)
    for router in (*of_model, explain.latents, status.router):
        app.include_router(router, dependencies=bearer)
    app.include_router(status.probes)
    if settings.playground:
        app.include_router(playground.router)
    # The last one added is the first to see a request.
    app.add_middleware(Shortcut, routers=of_model)
    app.add_middleware(Admission, engine=engine, settings=settings)
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
