"""Taking in whoever connects, also while there is much else to do."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger("lattemix")

BACKLOG = 2048
_AT_ONCE = 64  # before those who are here have a turn again
_PAUSE_SECONDS = 0.1


class Acceptor:
    """Makes connections of those who wait at a listening socket.

    uvloop would take in one for each turn of its loop. In a busy server those are long, and whoever
    brings a new connection would wait for seconds while others, who have theirs, are served.
    """

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Begin, on the running loop; `protocol` makes what a connection is given to."""
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._full = False  # and the log says so
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._begin()

    async def close(self) -> None:
        """Take in those who are connected, as far as they know, and then nobody any more."""
        self._loop.remove_reader(self._listener)
        if self._later is not None:
            self._later.cancel()
        with suppress(OSError):  # nobody is left, or there are no descriptors for them
            while True:
                self._take()
        self._listener.close()
        await asyncio.gather(*self._arriving, return_exceptions=True)

    def _begin(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                self._take()
        except (BlockingIOError, ConnectionError):  # nobody is left, or one who has left again
            self._full = False
        except OSError as error:
            # Those who wait do so until somebody leaves. Asking again and again would take the time
            # of those who are here.
            if not self._full:
                log.error("No connection can be taken in: %s (see ulimit -n)", error.strerror)
            self._full = True
            self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(_PAUSE_SECONDS, self._begin)

    def _take(self) -> None:
        client, _ = self._listener.accept()
        task = self._loop.create_task(self._connect(client))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connect(self, client: socket.socket) -> None:
        with suppress(OSError):  # it has left
            await self._loop.connect_accepted_socket(self._protocol, client)
