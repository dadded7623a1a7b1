"""Servers that are busy, gone, strange or locked."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lattemix.client.local import Local

from app.server import create_app
from app.settings import Settings
from lattemix.client import Client, ServerError
from model_store import LatteMixError
from tests.lattemix.client.conftest import URL, Kind, ask, both, in_turn


@both
def test_a_busy_server_is_asked_again_when_it_says(
    kind: Kind, info: dict[str, Any], naps: list[float]
) -> None:
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    server = in_turn(busy, busy, httpx.Response(200, json=info))
    assert ask(kind, server, "info").model == "tiny"
    assert len(naps) == 2
    assert all(7 <= nap <= 8.75 for nap in naps)


@both
@pytest.mark.parametrize(
    "trouble",
    [
        httpx.Response(503, json={"error": "Stopping.", "error_type": "Unhealthy"}),
        httpx.Response(429, headers={"Retry-After": "soon"}),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("gone"),
        httpx.ReadError(""),
    ],
)
def test_trouble_that_may_pass_is_waited_out(
    kind: Kind, info: dict[str, Any], naps: list[float], trouble: httpx.Response | Exception
) -> None:
    server = in_turn(trouble, trouble, trouble, httpx.Response(200, json=info))
    assert ask(kind, server, "info").model == "tiny"
    assert [0.125 * 2**i <= nap <= 0.25 * 2**i for i, nap in enumerate(naps)] == [True] * 3


def test_no_wait_is_for_ever(info: dict[str, Any], naps: list[float]) -> None:
    patient = httpx.Response(429, headers={"Retry-After": "86400"})
    ask("sync", in_turn(patient, httpx.Response(200, json=info)), "info")
    assert naps[0] <= 75


@both
@pytest.mark.parametrize("retries", [0, 3])
def test_it_gives_up(kind: Kind, naps: list[float], retries: int) -> None:
    answer = httpx.Response(503, json={"error": "Not yet.", "error_type": "Unhealthy"})
    server = in_turn(*[answer] * (retries + 1))
    with pytest.raises(ServerError, match=r"^Not yet\.$") as raised:
        ask(kind, server, "info", retries=retries)
    assert (raised.value.status, raised.value.error_type) == (503, "Unhealthy")
    assert len(naps) == retries
    server = in_turn(*[httpx.ConnectError("refused")] * (retries + 1))
    with pytest.raises(LatteMixError, match=f"^{URL} does not answer: refused\\.$"):
        ask(kind, server, "info", retries=retries)


@both
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(500, json={"error": "Why?", "error_type": "Internal"}), r"^Why\?$"),
        (httpx.Response(404, text="nothing"), f"^{URL}/info answered 404: nothing$"),
        (httpx.Response(502, json=["odd"]), f'^{URL}/info answered 502: \\["odd"\\]$'),
        (httpx.Response(200, text="<html>"), f"^{URL} is not a Latte-Mix server.$"),
        (httpx.Response(200, json={"model": "x"}), f"^{URL} is not a Latte-Mix server.$"),
        (httpx.ReadTimeout(""), f"^{URL} does not answer: ReadTimeout.$"),
    ],
)
def test_other_trouble_is_told_at_once(
    kind: Kind, naps: list[float], answer: httpx.Response | Exception, says: str
) -> None:
    with pytest.raises(LatteMixError, match=says):
        ask(kind, in_turn(answer), "info")
    assert naps == []


@both
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["embeddings"].pop(),
        lambda body: body["embeddings"].__setitem__(0, "AAAA"),
        lambda body: body["tokens"].pop(),
    ],
)
def test_an_answer_to_something_else_is_not_taken(
    kind: Kind, info: dict[str, Any], change: Callable[[dict[str, Any]], object]
) -> None:
    body = {"model": "m", "shape": [4, 5], "embeddings": ["A" * 106 + "A="] * 2}
    body |= {"tokens": [4, 4], "truncated": [False, False]}
    answers = [httpx.Response(200, json=info), httpx.Response(200, json=body)]
    assert len(ask(kind, in_turn(*answers), "embed", ["a", "b"])) == 2
    change(body)
    answers = [httpx.Response(200, json=info), httpx.Response(200, json=body)]
    with pytest.raises(LatteMixError, match="is not a Latte-Mix server"):
        ask(kind, in_turn(*answers), "embed", ["a", "b"])


@both
@pytest.mark.parametrize("url", ["http://HOST:PORT", "localhost:8000", "ftp://server"])
def test_an_address_that_is_none(kind: Kind, url: str, naps: list[float]) -> None:
    with pytest.raises(LatteMixError, match=f"^{url} does not answer: "):
        ask(kind, None, "info", url=url)
    assert naps == []


@both
def test_the_key_is_sent(kind: Kind, info: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def authorization(**options: Any) -> str | None:
        server = in_turn(httpx.Response(200, json=info))
        ask(kind, server, "info", **options)
        sent: str | None = server.requests[0].headers.get("Authorization")
        return sent

    assert authorization() is None
    assert authorization(api_key="mine") == "Bearer mine"
    monkeypatch.setenv("LATTEMIX_API_KEY", "theirs\n")
    assert authorization() == "Bearer theirs"
    assert authorization(api_key="mine") == "Bearer mine"
    assert authorization(api_key="") is None
    with pytest.raises(LatteMixError, match="not plain ASCII") as raised:
        authorization(api_key="geheimniß")
    assert "geheim" not in str(raised.value)


@both
def test_a_server_that_wants_a_key(kind: Kind, settings: Settings) -> None:
    guarded = settings.model_copy(update={"api_keys": Settings(api_keys="secret").api_keys})
    app = create_app(guarded)
    server = httpx.ASGITransport(app)
    with pytest.raises(ServerError, match="needs a key") as raised:
        ask(kind, server, "info")
    assert raised.value.status == 401
    assert ask(kind, server, "info", api_key="secret").model == "tiny"
    app.state.service.engine.close()


def test_in_this_process_no_key_is_asked_for(settings: Settings) -> None:
    guarded = settings.model_copy(update={"api_keys": Settings(api_keys="secret").api_keys})
    assert ask("sync", Local(guarded), "info").model == "tiny"


@pytest.mark.parametrize("fault", [None, KeyboardInterrupt])
def test_the_service_in_this_process_ends_with_its_client(
    settings: Settings, fault: type[BaseException] | None
) -> None:
    def work() -> None:
        with Client(URL, transport=Local(settings)) as client:
            assert client.embed(["a dog"]).shape == (1, 4, 5)
            during.update(threading.enumerate())
            if fault:
                raise fault

    before, during = set(threading.enumerate()), set[threading.Thread]()
    if fault:
        with pytest.raises(fault):
            work()
    else:
        work()
    assert "lattemix-model-0" in {thread.name for thread in during - before}
    assert set(threading.enumerate()) <= before
