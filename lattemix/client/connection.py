"""A connection to a server: retries, requests within its limits, several of them in flight."""

import asyncio
import os
import random
from asyncio import sleep
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import httpx

from lattemix.client.calls import (
    INFO,
    Body,
    BulkCall,
    Call,
    Item,
    Row,
    ServerError,
    replaced_model,
    to_json,
    unknown_server,
)
from lattemix.responses import InfoResponse, Rejection
from model_store import LatteMixError

TIMEOUT_SECONDS = 120.0
RETRIES = 4
IN_FLIGHT = 4  # concurrent requests: the next has arrived when the server finishes one

_FIRST_WAIT, _MAX_WAIT = 0.25, 60.0  # seconds between tries
_BUSY = (429, 503)
# No complete response arrived. Requests have no side effects, so repeating one is safe.
_LOST = (httpx.NetworkError, httpx.ConnectTimeout, httpx.RemoteProtocolError)


class Connection:
    """Sends calls to one server. `Client` and `AsyncClient` describe the arguments."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        timeout: float,
        retries: int,
        transport: httpx.AsyncBaseTransport | None,
        model: str | None,
    ) -> None:
        self.url = url.rstrip("/")
        self._model = model
        self._retries = retries
        self._info: InfoResponse | None = None
        headers = {"Content-Type": "application/json", **_authorization(api_key)}
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport)

    async def __aenter__(self) -> "Connection":
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def info(self) -> InfoResponse:
        """Request the server's model and limits."""
        self._info = await self.request(INFO)
        return self._info

    async def cached_info(self) -> InfoResponse:
        """Return the server's model and limits, requested once per fingerprint."""
        return self._info or await self.info()

    async def collect(
        self, bulk: BulkCall[Item, Body, Row], items: Iterable[Item]
    ) -> tuple[list[Row], InfoResponse]:
        """Return the row of every item; raise for the first that is rejected."""
        info = await self.cached_info()
        rows = [row async for row in self.rows(bulk, items, info, strict=True)]
        return [row for row in rows if not isinstance(row, Rejection)], info

    async def rows(
        self,
        bulk: BulkCall[Item, Body, Row],
        items: Iterable[Item],
        info: InfoResponse,
        strict: bool = False,
    ) -> AsyncIterator[Row | Rejection]:
        """Yield the row of every item, in order, all computed by the model of `info`."""
        in_flight: deque[asyncio.Task[list[Row | Rejection]]] = deque()
        try:
            for chunk in self.chunks(bulk, items, info):
                in_flight.append(asyncio.create_task(self.send_chunk(bulk, chunk, info, strict)))
                if len(in_flight) == IN_FLIGHT:
                    for row in await in_flight.popleft():
                        yield row
            while in_flight:
                for row in await in_flight.popleft():
                    yield row
        finally:
            for task in in_flight:
                task.cancel()
            await asyncio.gather(*in_flight, return_exceptions=True)

    def chunks(
        self, bulk: BulkCall[Item, Body, Row], items: Iterable[Item], info: InfoResponse
    ) -> Iterator[dict[int, Item]]:
        """Split items into requests within the server's limits."""
        return replace(bulk, call=self._with_model(bulk.call)).chunks(items, info)

    async def send_chunk(
        self,
        bulk: BulkCall[Item, Body, Row],
        chunk: dict[int, Item],
        info: InfoResponse,
        strict: bool = False,
    ) -> list[Row | Rejection]:
        """Return the rows of a chunk. Unless `strict`, send it again without rejected items."""
        results: dict[int, Row | Rejection] = {}
        unsent = [chunk]
        while unsent:
            part = unsent.pop()
            try:
                response = await self.request(bulk.with_items(part.values()))
            except ServerError as error:
                if strict or not bulk.is_about_items(error):
                    raise bulk.relocated(error, part) from error
                position = bulk.culprit(error, part)
                if position is None:  # too large together
                    unsent += _halves(part)
                    continue
                results[position] = bulk.rejection(error, position)
                part = {i: item for i, item in part.items() if i != position}
                unsent += [part] if part else []
                continue
            if response.fingerprint != info.fingerprint:
                raise replaced_model(info, response)
            rows = bulk.rows(response)
            if len(rows) != len(part):
                raise unknown_server(self.url)
            results.update(zip(part, rows, strict=True))
        return [results[position] for position in chunk]

    async def request(self, call: Call[Body]) -> Body:
        """Send a call and return the response's body."""
        body = call.parse(self.url, await self._send(self._with_model(call)))
        if self._info is not None and self._info.fingerprint != body.fingerprint:
            self._info = None
        return body

    def _with_model(self, call: Call[Body]) -> Call[Body]:
        if self._model is None or call.body is None:
            return call
        return replace(call, body={**call.body, "model": self._model})

    async def _send(self, call: Call[Body]) -> httpx.Response:
        """Send a call again while the server is busy or unreachable, up to the retry limit."""
        method, content = ("GET", None) if call.body is None else ("POST", to_json(call.body))
        params = {"model": self._model} if self._model and call.body is None else None
        tries = 0
        while True:
            last = tries == self._retries
            wait = min(_FIRST_WAIT * 2**tries, _MAX_WAIT) * random.uniform(0.5, 1)
            try:
                response = await self._http.request(
                    method, self.url + call.path, content=content, params=params
                )
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if last or not isinstance(error, _LOST):
                    reason = str(error).rstrip(".") or type(error).__name__
                    raise LatteMixError(f"{self.url} does not answer: {reason}.") from error
            else:
                if last or response.status_code not in _BUSY:
                    return response
                retry_after = response.headers.get("Retry-After", "")
                if retry_after.isdigit():  # jitter keeps clients from returning all at once
                    wait = min(int(retry_after), _MAX_WAIT) * random.uniform(1, 1.25)
            await sleep(wait)
            tries += 1


def _halves(chunk: dict[int, Item]) -> list[dict[int, Item]]:
    middle = len(chunk) // 2
    return [dict(islice(chunk.items(), *bounds)) for bounds in ((middle,), (middle, None))]


def _authorization(api_key: str | None) -> dict[str, str]:
    key = (os.environ.get("LATTEMIX_API_KEY", "") if api_key is None else api_key).strip()
    if not (key.isascii() and key.isprintable()):  # httpx's own error would show the key
        raise LatteMixError("The API key is not plain ASCII: see LATTEMIX_API_KEY.")
    return {"Authorization": f"Bearer {key}"} if key else {}
