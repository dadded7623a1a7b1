"""A listening socket, a loaded model and uvicorn, from start to a clean stop."""

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

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from app.accept import BACKLOG, Acceptor
from app.engine import Engine
from app.observe import logs
from app.protocol import BoundedHeaders
from app.server import create_app
from app.settings import Settings
from model_store import LatteMixError

_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1_048_576  # set, it no longer grows by itself
_TRIM_SECONDS = 30.0
_LAST_ARRIVALS_SECONDS = 0.5
_LAST_ANSWERS_SECONDS = 1
_STALLED_SECONDS = 300.0  # the receive window of a slow but steady reader may open only rarely


def run(settings: Settings) -> None:
    """Serve until told to stop; raise `LatteMixError` if that cannot begin."""
    logs.configure(settings.log_level, settings.log_format)
    # No line says who wrote it, so no record needs to find out.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # The model's threads have the cores; BLAS, spinning on all of them too, would wait for them.
    threadpool_limits(limits=1, user_api="blas")
    _give_back_memory()
    # The port first: finding it taken should not cost a model load. But nobody is to connect, and
    # a balancer to go elsewhere, until there is a model.
    listener = _bind(settings)
    app = create_app(settings)
    # What is there by now stays: a collector that went through it again and again would hold up
    # requests.
    gc.collect()
    gc.freeze()
    _listen(listener, settings)
    # uvicorn drains, then raises the signal again; a stop that was asked for is no failure.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: sys.exit(0))
    _Server(app, settings).run(sockets=[listener])


def _give_back_memory() -> None:
    """Let what large answers, or many at once, took return to the system.

    malloc would keep it in a heap full of holes: what is large is taken from the system each time,
    and the holes are given back now and then, which takes some milliseconds.
    """
    with suppress(AttributeError, OSError, TypeError):  # glibc's, and not every system has it
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        trim = libc.malloc_trim

        def now_and_then() -> None:
            while True:
                time.sleep(_TRIM_SECONDS)
                trim(0)

        threading.Thread(target=now_and_then, name="lattemix-memory", daemon=True).start()


class _Server(uvicorn.Server):
    """Says what to try once it really answers, and stops without losing what it accepted."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        grace = math.ceil(settings.grace_seconds) + _LAST_ANSWERS_SECONDS
        # uvicorn would log where web sockets were asked for, query string included.
        config = uvicorn.Config(
            _ClosesWhileDraining(app, app.state.service.engine),
            http=BoundedHeaders.within(settings.request_timeout),
            ws="none",
            proxy_headers=False,  # nothing here asks who the client is, or by which scheme it came
            log_config=None,
            timeout_graceful_shutdown=grace,
        )
        super().__init__(config)
        self._engine: Engine = app.state.service.engine
        self._settings = settings
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # it is to accept from none of them itself
        if self.started and sockets:
            self._acceptors = [Acceptor(listener, self._protocol) for listener in sockets]
            host, port = sockets[0].getsockname()[:2]
            page = "/" if self._settings.playground else "/docs"
            print(_things_to_try(host, port, page), file=sys.stderr, flush=True)

    async def main_loop(self) -> None:
        """Serve until a signal; after SIGTERM a while longer, but no longer ready.

        So a load balancer learns to send requests elsewhere before they would be refused here.
        Another signal ends the wait.
        """
        await super().main_loop()
        self._engine.draining = True
        end = time.monotonic() + self._settings.drain_seconds
        while self._captured_signals == [signal.SIGTERM] and time.monotonic() < end:
            await asyncio.sleep(0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, finish what was accepted, and answer 503 to what takes too long."""
        for acceptor in self._acceptors:
            await acceptor.close()
        await asyncio.sleep(_LAST_ARRIVALS_SECONDS)  # what has connected has sent its request
        loop = asyncio.get_running_loop()
        given_up = loop.call_later(self._settings.grace_seconds, self._engine.stop)
        await super().shutdown(sockets)
        given_up.cancel()

    def _protocol(self) -> asyncio.Protocol:
        """What uvicorn makes of a connection."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


class _ClosesWhileDraining:
    """Who is answered while the service is draining connects anew next time, and so elsewhere."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            # Asked when the answer begins: its request may have come before the signal.
            if message["type"] == "http.response.start" and self._engine.draining:
                headers = [*message.get("headers", []), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, closing)


def _bind(settings: Settings) -> socket.socket:
    """Bind the address, or say what stands in the way."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted connections inherit it
            # A client that stops reading must not hold its response in memory for ever.
            milliseconds = round(_STALLED_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name
        raise _cannot_listen(settings, error) from error
    return listener


def _listen(listener: socket.socket, settings: Settings) -> None:
    """Be there for clients; another may have become so meanwhile."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(settings, error) from error


def _cannot_listen(settings: Settings, error: Exception) -> LatteMixError:
    reason = getattr(error, "strerror", None) or error
    return LatteMixError(
        f"Cannot listen on {settings.host}:{settings.port}: {reason}. "
        "Choose another address with --host and --port, or LATTEMIX_HOST and LATTEMIX_PORT."
    )


def _things_to_try(host: str, port: int, page: str) -> str:
    # Where it listens on every address, this machine reaches it by its own.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    pairs = '{"pairs": [["A man is eating.", "Someone is having lunch."]]}'
    return f"""
Latte-Mix is ready. Three things to try:
  curl {url}/similarity -H 'content-type: application/json' -d '{pairs}'
  curl {url}/info
  open {url}{page} in a browser
"""
