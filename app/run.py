"""A listening socket, a loaded model and uvicorn, from start to a clean stop."""

import signal
import socket
import sys

import uvicorn

from app.server import create_app
from app.settings import Settings
from model_store import LatteMixError

_BACKLOG = 2048
_GRACE_SECONDS = 30


def run(settings: Settings) -> None:
    """Serve until told to stop; raise `LatteMixError` if that cannot begin."""
    # The port first: finding it taken should not cost a model load.
    listener = _listen(settings)
    config = uvicorn.Config(
        create_app(settings),
        log_level=settings.log_level,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    # uvicorn drains, then raises the signal again; a stop that was asked for is no failure.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: sys.exit(0))
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says what to try once it really answers."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            print(_things_to_try(host, port), file=sys.stderr, flush=True)


def _listen(settings: Settings) -> socket.socket:
    """Bind the address, or say what stands in the way."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # claims the port; until then another could bind it too
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name
        reason = getattr(error, "strerror", None) or error
        raise LatteMixError(
            f"Cannot listen on {settings.host}:{settings.port}: {reason}. "
            "Choose another address with --host and --port, or LATTEMIX_HOST and LATTEMIX_PORT."
        ) from error
    return listener


def _things_to_try(host: str, port: int) -> str:
    # Where it listens on every address, this machine reaches it by its own.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    pairs = '{"pairs": [["A man is eating.", "Someone is having lunch."]]}'
    return f"""
Latte-Mix is ready. Three things to try:
  curl {url}/similarity -H 'content-type: application/json' -d '{pairs}'
  curl {url}/info
  open {url}/docs in a browser
"""
