"""HTTP as uvicorn speaks it fastest, with a limit on what comes before a body."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.errors import ApiError, answer

MOST_HEADER_BYTES = 65_536


class BoundedHeaders(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end; uvicorn would keep it all."""

    _header_bytes = 0
    _in_headers = True
    _just_begun = False

    def on_message_begin(self) -> None:
        """A request begins."""
        self._header_bytes, self._in_headers, self._just_begun = 0, True, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its body follows, which is bounded elsewhere."""
        self._in_headers = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Count what arrives until the headers are complete."""
        super().data_received(data)
        if self._just_begun:  # in this data, which may hold the end of another request, too
            self._just_begun = False
        elif self._in_headers:
            self._header_bytes += len(data)
        if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
            self._refuse()

    def _refuse(self) -> None:
        message = f"The headers are larger than {MOST_HEADER_BYTES:,} bytes."
        body = bytes(answer(ApiError("TooLarge", message)).body)
        if self.cycle is None or self.cycle.response_complete:  # no other answer is on its way
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(body), body)
            )
        self.transport.close()
