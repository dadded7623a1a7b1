"""Latte-Mix on Ray Serve: the same service, in as many replicas as its load asks for."""

from fastapi import FastAPI
from ray import serve
from threadpoolctl import threadpool_limits

from app.observe import logs
from app.server import create_app
from app.settings import load_settings


def service() -> FastAPI:
    """The service of `lattemix serve`, made where a replica runs: LATTEMIX_* is read there."""
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format)
    threadpool_limits(limits=1, user_api="blas")
    return create_app(settings)


# How many replicas, and what each has of a machine: see serve.yaml.
@serve.deployment
@serve.ingress(service)
class LatteMix:
    """A replica: one engine, which batches whatever Ray sends to it at the same time."""

    app: FastAPI

    async def check_health(self) -> None:
        """Raise, and be replaced, if the model does not answer."""
        await self.app.state.service.engine.check()


app = LatteMix.bind()  # type: ignore[attr-defined]
