"""The service on Ray Serve, which scales the number of replicas."""

from fastapi import FastAPI
from ray import serve
from threadpoolctl import threadpool_limits

from app.observe import logs
from app.server import create_app
from app.settings import load_settings


def service() -> FastAPI:
    """Return the service; called in each replica, so LATTEMIX_* is read there."""
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format)
    threadpool_limits(limits=1, user_api="blas")
    return create_app(settings)


# serve.yaml sets the number of replicas and the resources of each.
@serve.deployment
@serve.ingress(service)
class LatteMix:
    """A replica: its models, which batch concurrent requests."""

    app: FastAPI

    async def check_health(self) -> None:
        """Raise if the model does not respond; Ray then replaces the replica."""
        await self.app.state.service.models.check()


app = LatteMix.bind()  # type: ignore[attr-defined]
