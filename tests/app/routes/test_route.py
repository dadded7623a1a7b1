"""Reading, limiting and validating request bodies."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from app.routes import route
from app.server import create_app
from app.settings import Settings
from tests.app.conftest import failure

REQUEST = {"inputs": ["a dog is running"]}


@pytest.fixture
def app(settings: Settings) -> Iterator[FastAPI]:
    app = create_app(settings)
    yield app
    app.state.service.models.close()


def test_works_in_a_mounted_application(app: FastAPI) -> None:
    outer = FastAPI()
    outer.mount("/under", app)
    direct = TestClient(app).post("/embed", json=REQUEST)
    mounted = TestClient(outer).post("/under/embed", json=REQUEST)
    assert (mounted.status_code, mounted.json()) == (200, direct.json())


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError()])
def test_internal_error_gives_500_and_is_raised(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(app.state.service.models.default.engine, "encode", fail)
    response = TestClient(app, raise_server_exceptions=False).post("/embed", json=REQUEST)
    assert failure(response)[:2] == (500, "Internal")
    with pytest.raises(type(error)):
        TestClient(app).post("/embed", json=REQUEST)


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, deflate"])
def test_rejects_a_compressed_body(app: FastAPI, coding: str) -> None:
    content = gzip.compress(b'{"inputs": ["a dog"]}')
    headers = {"content-type": "application/json", "content-encoding": coding}
    response = TestClient(app).post("/embed", content=content, headers=headers)
    message = "The body is compressed: send it without a content-encoding."
    assert failure(response) == (422, "Validation", message)


def test_accepts_identity_encoding(app: FastAPI) -> None:
    headers = {"content-encoding": "identity"}
    assert TestClient(app).post("/embed", json=REQUEST, headers=headers).status_code == 200


def test_responses_forbid_content_sniffing(app: FastAPI) -> None:
    client = TestClient(app)
    for response in (client.get("/info"), client.get("/"), client.get("/x"), client.post("/embed")):
        assert response.headers.get_list("x-content-type-options") == ["nosniff"]


JSON = {"content-type": "application/json"}


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """A service that accepts large bodies of at most 8 sentences."""
    settings = settings.model_copy(update={"max_body_bytes": 4_000_000, "max_characters": 10**6})
    with TestClient(create_app(settings)) as client:
        yield client


def many(item: bytes, count: int = 100_000) -> bytes:
    return b"[" + item + (b"," + item) * (count - 1) + b"]"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/similarity", b'{"pairs": %s}' % many(b'["",""]')),
        ("/embed", b'{"inputs": %s}' % many(b"[]")),
        ("/embed", b'{"inputs": %s}' % many(b"{}")),
        ("/embed", b'{"inputs": %s}' % many(b"1")),
        ("/embed", b'{"inputs": %s}' % many(b"null")),
        ("/embed", b'{"inputs": %s}' % many(b"1.2345678901234567e-300")),
        ("/embed", b'{"inputs": %s}' % many(b"9" * 4000, 100)),
        ("/embed", b'{"inputs": %s}' % many(b'"a"')),
        ("/embed", b'{"inputs": %s}' % many(rb'"\\"')),
        ("/embed", b"{%s}" % many(b'"a":1')[1:-1]),
        ("/similarity", b'{"inputs": {%s}}' % many(b'"a":1')[1:-1]),
    ],
)
def test_rejects_a_body_of_too_many_items_before_parsing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, content: bytes
) -> None:
    monkeypatch.setattr(route, "_parse", lambda *_: pytest.fail("parsed"))
    status, kind, message = failure(client.post(path, content=content, headers=JSON))
    assert (status, kind) == (413, "TooLarge")
    assert message == (
        "The body holds more items than the 8 sentences of LATTEMIX_MAX_INPUTS need: send several "
        "requests, or raise it."
    )


@pytest.mark.parametrize("text", [', [{"' * 9000, "\\" * 40_000, '\\"' * 20_000, "words " * 9000])
def test_does_not_count_the_content_of_strings_as_items(client: TestClient, text: str) -> None:
    content = json.dumps({"inputs": [text + " dog", "a man"], "truncate": "right"}).encode()
    assert client.post("/embed", content=content, headers=JSON).status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_rejects_json_that_is_not_utf_8(client: TestClient, encoding: str) -> None:
    content = '{"inputs": "a dog"}'.encode(encoding)
    status, _, message = failure(client.post("/embed", content=content, headers=JSON))
    assert (status, message) == (422, "The body is not valid JSON.")
    escaped = '{"inputs": "\\"", "x": %s}' % ("[" + "[]," * 20_000 + "[]]")
    response = client.post("/embed", content=escaped.encode(encoding), headers=JSON)
    assert failure(response)[0] in (413, 422)


def test_accepts_a_byte_order_mark(client: TestClient) -> None:
    content = '{"inputs": "a dog"}'.encode("utf-8-sig")
    assert client.post("/embed", content=content, headers=JSON).status_code == 200


def test_parses_large_bodies_off_the_event_loop(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    parse = route._parse

    def note_thread(*arguments: Any) -> object:
        threads.append(threading.current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(route, "_parse", note_thread)
    for words in (10, 10_000):
        content = b'{"inputs": "%s", "truncate": "right"}' % (b"dog " * words)
        assert client.post("/embed", content=content, headers=JSON).status_code == 200
    small, large = threads
    assert not small.startswith("lattemix")
    assert large.startswith("lattemix-pool")


def test_reports_one_error_for_many_invalid_items(client: TestClient) -> None:
    message = failure(client.post("/embed", json={"inputs": [1] * 5000}))[2]
    assert message == "inputs[0]: Input should be a valid string."


@pytest.mark.parametrize("path", ["/embed", "/similarity"])
def test_reports_one_error_for_many_unknown_fields(client: TestClient, path: str) -> None:
    unknown = {str(number): 0 for number in range(1000)}
    body = {"inputs": ["a"]} if path == "/embed" else {"inputs": unknown}
    message = failure(client.post(path, json=body | unknown))[2]
    assert re.fullmatch(r"(inputs\.source_sentence: Field required|0: Extra inputs.*).*", message)
    assert "(and 2 more)" in message or "more" not in message


TEXTS = st.text(alphabet='\\"[]{},: aé漢\n')
VALUES = st.recursive(
    TEXTS | st.none() | st.integers(),
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
)


def count_items(value: object) -> int:
    """Strings, lists and objects in a JSON value."""
    if isinstance(value, list):
        return 1 + sum(map(count_items, value))
    if isinstance(value, dict):
        return 1 + sum(1 + count_items(each) for each in value.values())
    return isinstance(value, str)


@settings(max_examples=30)
@given(st.lists(VALUES), st.booleans(), st.integers(1, 20))
def test_counts_items_whatever_the_strings_contain(
    value: list[object], ascii_only: bool, piece: int
) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    items = count_items(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "_PIECE", piece)
        patch.setattr(route, "_BYTES_PER_ITEM", 10**9)
        patch.setattr(route, "_ITEMS_PER_INPUT", 0)
        patch.setattr(route, "_OTHER_ITEMS", items)
        assert not route._has_more_items(content, 1)
        patch.setattr(route, "_OTHER_ITEMS", items - 1)
        assert route._has_more_items(content, 1)


def test_counts_bytes_outside_of_strings() -> None:
    limit = (3 * 8 + 100) * 64
    assert not route._has_more_items(b'["' + b"1, " * limit + b'"]', 8)
    assert not route._has_more_items(b" " * limit, 8)
    assert route._has_more_items(b" " * (limit + 1), 8)
