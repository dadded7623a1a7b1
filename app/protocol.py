"""uvicorn's HTTP protocol, with limits on the size of headers and on the time they take."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.errors import ApiError, answer

MOST_HEADER_BYTES = 65_536
_HEADER_COST = 64  # bytes that are taken by one, besides its own
_CHUNK_COST = 8


class BoundedHeaders(HttpToolsProtocol):
    """Closes a connection whose headers are too large or incomplete after `seconds`.

    uvicorn has no such limits. The time starts with the connection or the end of the last response.
    """

    seconds = 60.0
    _header_bytes = 0  # of complete ones
    _other_bytes = 0  # that are no body
    _body_bytes = 0
    _in_headers = True
    _just_begun = False
    _since = 0.0  # when the client's turn began
    _next_look: asyncio.TimerHandle | None = None

    @classmethod
    def within(cls, seconds: float) -> "type[BoundedHeaders]":
        """The same with another limit; uvicorn makes the connections, and knows of none."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is the client's turn."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look_in(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is to be waited for."""
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._header_bytes = self._other_bytes = self._body_bytes = 0
        self._in_headers = self._just_begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One is complete, or a trailer, which nobody needs."""
        self._header_bytes += len(name) + len(value) + _HEADER_COST
        if self._in_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Some of the body came."""
        self._body_bytes += len(body)
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it came."""
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Its body follows, which is bounded elsewhere."""
        self._in_headers = False
        if not self._refused():
            super().on_headers_complete()

    def on_response_complete(self) -> None:
        """It is the client's turn again."""
        self._since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Count what arrives besides bodies."""
        body_bytes = self._body_bytes
        super().data_received(data)
        if self._just_begun:  # in this data, which may hold the end of another request, too
            self._just_begun = False
        else:
            self._other_bytes += len(data) - (self._body_bytes - body_bytes)
        self._refused()

    def _refused(self) -> bool:
        """Whether there is too much that is no body."""
        # Chunks have heads and ends, too: five bytes at least, if for a single byte of body.
        other_bytes = self._other_bytes - _CHUNK_COST * self._body_bytes
        too_much = max(self._header_bytes, other_bytes) > MOST_HEADER_BYTES
        if too_much and not self.transport.is_closing():
            message = f"The headers are larger than {MOST_HEADER_BYTES:,} bytes."
            self._refuse(b"431 Request Header Fields Too Large", ApiError("TooLarge", message))
        return too_much

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _look_in(self, seconds: float) -> None:
        self._next_look = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """End a connection whose client has let its time pass.

        There is one look ahead for a connection, put off while it is in use: a timer for every
        request would cost every request.
        """
        left = self._since + self.seconds - self.loop.time()
        if self._answering or self.transport.get_write_buffer_size():
            self._look_in(self.seconds)
        elif left > 0:
            self._look_in(left)
        elif self._in_headers and self.scope is not None:  # it has sent some of them
            message = (
                f"The headers did not arrive within the {self.seconds:g} seconds of "
                "LATTEMIX_REQUEST_TIMEOUT."
            )
            self._refuse(b"408 Request Timeout", ApiError("SlowBody", message))
        else:
            self.transport.close()

    def _refuse(self, status: bytes, error: ApiError) -> None:
        body = bytes(answer(error).body)
        if not self._answering:  # no other answer is on its way
            self.transport.write(
                b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (status, len(body), body)
            )
        self.transport.close()
