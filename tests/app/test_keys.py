import asyncio
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from app import keys as keys_module
from app.keys import PUBLIC_PATHS, Keys, RequireKey
from app.observe import Metrics, Observe
from app.settings import Settings, load_settings
from model_store import LatteMixError
from tests.app.conftest import failure

MISSING = (
    "This service needs a key: send it as `Authorization: Bearer KEY` (see LATTEMIX_API_KEYS)."
)
INVALID = "The API key is not valid (see LATTEMIX_API_KEYS)."


def service(*keys: str) -> TestClient:
    return TestClient(RequireKey(PlainTextResponse("inside"), Keys(keys)))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def rejection(response: httpx.Response) -> str:
    """The message of a 401."""
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    _, kind, message = failure(response)
    assert kind == "Unauthorized"
    return message


@pytest.fixture
def from_file(tmp_path: Path) -> Callable[[bytes], Settings]:
    def settings(content: bytes) -> Settings:
        (tmp_path / "keys").write_bytes(content)
        return Settings(api_keys_file=tmp_path / "keys")

    return settings


def test_no_keys_by_default() -> None:
    assert not Keys.load(Settings())


def test_accepts_every_key() -> None:
    client = service("first", "second", "third")
    for key in ("first", "second", "third"):
        assert client.post("/embed", headers=bearer(key)).text == "inside"


@pytest.mark.parametrize(
    "header", ["bearer first", "BEARER first", "Bearer   first", "Bearer first "]
)
def test_accepts_the_scheme_in_any_case(header: str) -> None:
    assert service("first").get("/info", headers={"authorization": header}).text == "inside"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, MISSING),
        ("", MISSING),
        ("Bearer", MISSING),
        ("Bearer  ", MISSING),
        ("first", MISSING),
        ("Basic first", MISSING),
        ("Token first", MISSING),
        ("Bearerfirst", MISSING),
        ("Bearer wrong", INVALID),
        ("Bearer First", INVALID),
        ("Bearer first2", INVALID),
        ("Bearer firs", INVALID),
        ("Bearer first first", INVALID),
        ("Bearer caf\u00e9", INVALID),
    ],
)
def test_rejects_missing_and_invalid_keys(header: str | None, message: str) -> None:
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    assert rejection(service("first").post("/embed", headers=headers)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", [*sorted(PUBLIC_PATHS), "/playground/main.js", "/static-offline-docs/x.css"]
)
def test_public_paths_need_no_key(path: str) -> None:
    assert service("first").get(path).text == "inside"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/playground",
            "/info",
            "/similarity",
            "/latents/0/0",
            "/embed",
            "/v1/embeddings",
            "/health/",
            "/healthy",
        ),
        *("/docs/x", "/static-offline-docs", "/x/health", "/health//", "/HEALTH", "/embed?/health"),
    ],
)
def test_all_other_paths_need_a_key(path: str) -> None:
    assert rejection(service("first").get(path)) == MISSING


def test_public_paths() -> None:
    assert {"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"} == PUBLIC_PATHS


def messages_without_key(scope: dict[str, Any]) -> list[Message]:
    """Messages sent to a request without a key, whose body must not be read."""
    sent: list[Message] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("the request was passed on")

    async def receive() -> Message:
        pytest.fail("the body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(RequireKey(inside, Keys(["first"]))(scope, receive, send))
    return sent


def test_rejects_before_reading_the_body() -> None:
    sent = messages_without_key({"type": "http", "method": "POST", "path": "/embed", "headers": []})
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 401


def test_compares_all_keys_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def watch(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", watch)
    keys = Keys(["a", "bb", "a-much-longer-key"])
    for key, valid in [("a", True), ("a-much-longer-key", True), ("x" * 1000, False), ("", False)]:
        compared.clear()
        assert (keys.find(key) is not None) is valid
        assert len(compared) == 3, "a match must not end the search"
        assert len({b for _, b in compared}) == 3
        assert {len(side) for pair in compared for side in pair} == {32}, "lengths would show"


def test_traces_rejections() -> None:
    metrics = Metrics()
    app = RequireKey(PlainTextResponse("inside"), Keys(["first"]))
    response = TestClient(Observe(app, metrics)).post("/embed")
    assert rejection(response) == MISSING
    assert "x-request-id" in response.headers
    assert b'lattemix_rejected_total{reason="Unauthorized"} 1.0' in metrics.render()


def test_passes_other_scopes_on() -> None:
    passed: list[str] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["type"])

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        pass

    for kind in ("lifespan", "websocket"):
        asyncio.run(RequireKey(inside, Keys(["first"]))({"type": kind}, receive, send))
    assert passed == ["lifespan", "websocket"]


def test_reads_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_API_KEYS", "first, second")
    keys = Keys.load(load_settings())
    assert [keys.find(key) is not None for key in ("first", "second", "first, second")] == [1, 1, 0]


def test_reads_keys_from_a_file(from_file: Callable[[bytes], Settings]) -> None:
    content = "# caf\u00e9's keys\n\nfirst\r\n  second  \n \t\n#third\nfourth#4".encode()
    keys = Keys.load(from_file(content))
    candidates = ("first", "second", "fourth#4", "third", "#third", "", "fourth")
    assert [keys.find(key) is not None for key in candidates] == [1, 1, 1, 0, 0, 0, 0]


def test_accepts_keys_of_environment_and_file(from_file: Callable[[bytes], Settings]) -> None:
    settings = from_file(b"second\n")
    both = Settings(api_keys=("first",), api_keys_file=settings.api_keys_file)
    keys = Keys.load(both)
    assert keys.find("first")
    assert keys.find("second")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"# only a comment\n"])
def test_rejects_a_file_without_keys(
    from_file: Callable[[bytes], Settings], content: bytes
) -> None:
    with pytest.raises(LatteMixError, match=r"^LATTEMIX_API_KEYS_FILE names a file without keys"):
        Keys.load(from_file(content))


def test_rejects_an_unreadable_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(LatteMixError, match=r"^LATTEMIX_API_KEYS_FILE cannot be read: [A-Z]"):
            Keys.load(Settings(api_keys_file=path))


@pytest.mark.parametrize("key", ["s\u00e9cret", "sec ret", "s\x00ecret", "\ufeffsecret"])
def test_rejects_keys_no_client_can_send_without_showing_them(
    from_file: Callable[[bytes], Settings], key: str
) -> None:
    with pytest.raises(LatteMixError) as caught:
        Keys.load(from_file(f"# keys\nfine\n{key}\n".encode()))
    assert str(caught.value).startswith("LATTEMIX_API_KEYS_FILE: key 2 is not ASCII")
    assert "ret" not in str(caught.value)
    with pytest.raises(LatteMixError) as caught:
        Keys.load(Settings(api_keys=(key,)))
    assert str(caught.value).startswith("LATTEMIX_API_KEYS: key 1 is not ASCII")
    assert "ret" not in str(caught.value)


def test_repr_shows_no_key() -> None:
    keys = Keys(["secret"])
    assert "secret" not in repr(keys) + str(vars(keys))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock that `app.keys` reads."""
    now = [100.0]
    monkeypatch.setattr("app.keys.time.monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def test_applies_changes_of_the_file_without_a_restart(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    file = tmp_path / "keys"
    file.write_text("first\nsecond\n")
    client = TestClient(RequireKey(PlainTextResponse("inside"), Keys(["fixed"], file)))

    def accepted() -> list[str]:
        candidates = ("fixed", "first", "second", "third")
        return [
            key for key in candidates if client.get("/info", headers=bearer(key)).text == "inside"
        ]

    assert accepted() == ["fixed", "first", "second"]
    file.write_text("second\nthird\n")
    clock(1.5)
    assert accepted() == ["fixed", "second", "third"]
    replaced = tmp_path / "new"  # as Kubernetes and careful editors do
    replaced.write_text("first\n")
    replaced.replace(file)
    clock(1.5)
    assert accepted() == ["fixed", "first"]


@pytest.mark.parametrize("content", [None, "", "# nobody\n", "caf\u00e9\n"])
def test_keeps_the_keys_and_logs_once_when_the_file_becomes_invalid(
    tmp_path: Path,
    clock: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
    content: str | None,
) -> None:
    file = tmp_path / "keys"
    file.write_text("first\n")
    keys = Keys((), file)
    file.unlink()
    if content is not None:
        file.write_text(content)
    for _ in range(3):
        clock(1.5)
        assert keys.find("first")
        assert not keys.find("second")
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("LATTEMIX_API_KEYS_FILE")
    assert message.endswith("The keys read before stay valid.")
    file.write_text("second\n")
    clock(1.5)
    assert keys.find("second")
    assert not keys.find("first")


def test_reads_the_file_again_after_a_failed_read(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("first\n")
    keys = Keys((), file)
    read = keys_module._read

    def forbidden(path: Path) -> list[bytes]:
        raise LatteMixError("LATTEMIX_API_KEYS_FILE cannot be read: Permission denied.")

    monkeypatch.setattr(keys_module, "_read", forbidden)
    file.write_text("second\n")
    clock(1.5)
    assert keys.find("first")
    monkeypatch.setattr(keys_module, "_read", read)  # the file itself does not change any more
    clock(1.5)
    assert keys.find("second")
    assert not keys.find("first")


def test_rejects_with_429_above_the_key_rate(clock: Callable[[float], None]) -> None:
    app = RequireKey(PlainTextResponse("inside"), Keys(["first", "second"]), rate=0.5)
    client = TestClient(app)

    def get(key: str) -> httpx.Response:
        return client.get("/info", headers=bearer(key))

    assert [get("first").status_code for _ in range(6)] == [200] * 5 + [429]
    response = get("first")
    assert response.headers["retry-after"] == "2"
    message = "This key exceeds the requests per second of LATTEMIX_KEY_RATE: retry in 2 s."
    assert response.json() == {"error": message, "error_type": "Overloaded"}
    assert get("second").status_code == 200, "each key has its own limit"
    assert client.get("/health").status_code == 200
    clock(2)
    assert [get("first").status_code for _ in range(2)] == [200, 429]
    clock(1000)
    assert [get("first").status_code for _ in range(6)] == [200] * 5 + [429]


def test_invalid_keys_create_no_rate_limit_bucket(clock: Callable[[float], None]) -> None:
    app = RequireKey(PlainTextResponse("inside"), Keys(["first"]), rate=0.1)
    client = TestClient(app)
    for number in range(50):
        assert client.get("/info", headers=bearer(f"wrong{number}")).status_code == 401
    assert not app.limiter._buckets
    assert client.get("/info", headers=bearer("first")).status_code == 200
