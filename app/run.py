"""Run the service: bind a port, load the models, serve until a signal."""

import asyncio
import ctypes
import gc
import logging
import math
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from app.engine import Host, Models
from app.observe import logs
from app.server import create_app
from app.settings import Settings
from model_store import LatteMixError

_BACKLOG = 2048  # pending connections
_USER_TIMEOUT_SECONDS = 300.0  # a slow but steady reader may open its receive window only rarely
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 1_048_576  # -3: glibc's number for the option
_TRIM_SECONDS = 30.0
_GC_THRESHOLD = 20_000  # new objects


def run(settings: Settings) -> None:
    """Serve until a signal; raise `LatteMixError` if the service cannot start."""
    logs.configure(settings.log_level, settings.log_format)
    # No log line shows these, so no record needs to look them up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # BLAS threads would compete with the model's threads for the cores.
    threadpool_limits(limits=1, user_api="blas")
    _return_freed_memory()
    # The port first: finding it taken should not cost a model load. It does not listen yet, so a
    # load balancer sends no requests before the model is loaded.
    listener = _bind(settings)
    app = create_app(settings)
    # Exclude what lives as long as the process from garbage collection, which delays requests.
    gc.collect()
    gc.freeze()
    # Requests create many objects and few cycles.
    gc.set_threshold(_GC_THRESHOLD)
    _listen(listener, settings)
    Server(app, settings).run(sockets=[listener])


def _return_freed_memory() -> None:
    """Return the memory of large or many responses to the system instead of keeping it.

    glibc would keep it in a fragmented heap. Large blocks are mapped one by one, and free pages of
    the heap are returned every 30 seconds, which takes some milliseconds.
    """
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        trim = libc.malloc_trim

        def trim_periodically() -> None:
            while True:
                time.sleep(_TRIM_SECONDS)
                trim(0)

        threading.Thread(target=trim_periodically, name="lattemix-memory", daemon=True).start()


class Server(uvicorn.Server):
    """A uvicorn server that serves for `drain_seconds` after SIGTERM while `/ready` fails.

    A load balancer thus stops sending requests before they would be rejected. A second signal ends
    the drain. Requests that outlast `grace_seconds` are then cancelled; `Admission` answers 503.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._settings = settings
        self._models: Models = app.state.service.models
        self._host = self._models.host
        self._reload: asyncio.Task[None] | None = None
        self._drain_end = math.inf
        config = uvicorn.Config(
            _CloseWhenDraining(app, self._host),
            ws="none",  # uvicorn would log the URL of a WebSocket request, query string included
            proxy_headers=False,  # the service uses neither client address nor scheme
            log_config=None,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=math.ceil(settings.grace_seconds),
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections and SIGHUP, then print example commands."""
        await super().startup(sockets)
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            page = "/" if self._settings.playground else "/docs"
            print(_things_to_try(host, port, page), file=sys.stderr, flush=True)

    def reload(self) -> None:
        """Load replaced models again, in the background."""
        self._reload = asyncio.get_running_loop().create_task(self._models.reload())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain after a first SIGTERM, else stop; a second SIGINT skips the grace period.

        uvicorn's own method would also raise the signal again at the end: exit status not 0.
        """
        if sig == signal.SIGTERM and not self._host.draining:
            self._drain_end = time.monotonic() + self._settings.drain_seconds
        else:
            self.force_exit |= self.should_exit and sig == signal.SIGINT
            self.should_exit = True
        self._host.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn asks ten times a second."""
        if time.monotonic() >= self._drain_end:
            self.should_exit = True
        return await super().on_tick(counter)


class _CloseWhenDraining:
    """Add `connection: close` to responses while the service drains, so that clients reconnect."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            # Checked when the response starts: its request may have come before the signal.
            if message["type"] == "http.response.start" and self._host.draining:
                headers = [*message.get("headers", []), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_closing)


def _bind(settings: Settings) -> socket.socket:
    """Return a socket bound to the address, or raise `LatteMixError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted connections inherit it
            # A client that stops reading must not hold its response in memory for ever.
            milliseconds = round(_USER_TIMEOUT_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host cannot be a name
        raise _cannot_listen(settings, error) from error
    return listener


def _listen(listener: socket.socket, settings: Settings) -> None:
    """Listen, or raise `LatteMixError`: another process may listen on the port by now."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _cannot_listen(settings, error) from error


def _cannot_listen(settings: Settings, error: Exception) -> LatteMixError:
    reason = getattr(error, "strerror", None) or error
    return LatteMixError(
        f"Cannot listen on {settings.host}:{settings.port}: {reason}. "
        "Choose another address with --host and --port, or LATTEMIX_HOST and LATTEMIX_PORT."
    )


def _things_to_try(host: str, port: int, page: str) -> str:
    # A server on all addresses is reached on this machine by the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    pairs = '{"pairs": [["A man is eating.", "Someone is having lunch."]]}'
    return f"""
Latte-Mix is ready. Three things to try:
  curl {url}/similarity -H 'content-type: application/json' -d '{pairs}'
  curl {url}/info
  open {url}{page} in a browser
"""
