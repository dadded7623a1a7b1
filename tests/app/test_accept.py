import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import uvloop

from app.accept import Acceptor

PATIENCE = 10  # seconds
CLIENTS = 50


class Listener(socket.socket):
    """A listening socket of a process that at times has no descriptors left."""

    failures = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Guest(asyncio.Protocol):
    """One who was taken in."""

    def __init__(self, guests: "Guests") -> None:
        self.guests = guests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.guests.append(transport)


class Guests(list[asyncio.BaseTransport]):
    """All of them."""

    def protocol(self) -> Guest:
        return Guest(self)

    async def come(self) -> int:
        """Return how many turns the loop took until all were there."""
        turns = 0
        async with asyncio.timeout(PATIENCE):
            while len(self) < CLIENTS:
                turns += 1
                await asyncio.sleep(0)
        return turns


@pytest.fixture
def listener() -> Iterator[Listener]:
    """With clients who wait to be taken in."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(Listener())
        listener.bind(("127.0.0.1", 0))
        listener.listen(CLIENTS)
        for _ in range(CLIENTS):
            open_sockets.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
        yield listener


def test_everyone_who_waits_is_taken_in_at_once(listener: Listener) -> None:
    async def scenario() -> int:
        guests = Guests()
        acceptor = Acceptor(listener, guests.protocol)
        turns = await guests.come()
        await acceptor.close()
        return turns

    assert uvloop.run(scenario()) < CLIENTS / 2


def test_without_descriptors_they_wait_until_there_are_some(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        guests = Guests()
        acceptor = Acceptor(listener, guests.protocol)
        await guests.come()
        await acceptor.close()

    listener.failures = 3
    uvloop.run(scenario())
    message = "No connection can be taken in: Too many open files (see ulimit -n)"
    assert [record.getMessage() for record in caplog.records] == [message]


def test_those_who_are_connected_when_it_ends_are_taken_in(listener: Listener) -> None:
    async def scenario() -> int:
        guests = Guests()
        acceptor = Acceptor(listener, guests.protocol)
        while listener.failures:
            await asyncio.sleep(0)
        await acceptor.close()
        return len(guests)

    listener.failures = 1
    address = listener.getsockname()
    assert uvloop.run(scenario()) == CLIENTS
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, PATIENCE)
