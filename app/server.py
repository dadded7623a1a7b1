"""The application: settings and a loaded model in, an ASGI app out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__, errors
from app.engine import Encoder
from app.engine.worker import Worker
from app.limits import BodyLimit
from app.routes import embed, similarity, status
from app.routes.common import Service
from app.settings import Settings, load_settings

_DESCRIPTION = """\
Semantic similarity with latent categorical mixtures. A sentence is represented by the average of
its tokens' latent distributions; two sentences are compared by comparing those mixtures.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Load the model and return the service; raise `LatteMixError` if it cannot be served."""
    settings = settings or load_settings()
    encoder = Encoder.load(settings)
    worker = Worker(settings.max_waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        encoder.stop()
        worker.close()

    app = FastAPI(
        title="Latte-Mix", version=__version__, description=_DESCRIPTION, lifespan=lifespan
    )
    app.state.service = Service(settings, encoder, worker)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    errors.install(app)
    for family in (similarity, embed, status):
        app.include_router(family.router)
    return app
