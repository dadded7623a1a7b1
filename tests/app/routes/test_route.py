"""The way to the model's endpoints."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
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
    app.state.service.engine.close()


def test_every_endpoint_of_the_model_has_the_shortcut(app: FastAPI) -> None:
    documented = {path for path, methods in app.openapi()["paths"].items() if "post" in methods}
    shortcut = next(each for each in app.user_middleware if each.cls is route.Shortcut)
    assert route.Shortcut(app, **shortcut.kwargs)._routes.keys() == documented


def test_what_is_mounted_elsewhere_is_found_the_long_way(app: FastAPI) -> None:
    outer = FastAPI()
    outer.mount("/under", app)
    direct = TestClient(app).post("/embed", json=REQUEST)
    mounted = TestClient(outer).post("/under/embed", json=REQUEST)
    assert (mounted.status_code, mounted.json()) == (200, direct.json())


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [(ValueError("a bug"), 500, "Internal"), (MemoryError(), 500, "Internal")],
)
def test_a_fault_of_our_own_is_answered_and_raised(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, kind: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(app.state.service.engine, "encode", fail)
    answer = TestClient(app, raise_server_exceptions=False).post("/embed", json=REQUEST)
    assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    with pytest.raises(type(fault)):
        TestClient(app).post("/embed", json=REQUEST)


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, deflate"])
def test_a_compressed_body_is_refused_and_never_unpacked(app: FastAPI, coding: str) -> None:
    bomb = gzip.compress(b'{"inputs": ["' + b"a" * 50_000_000 + b'"]}')[:4000]
    headers = {"content-type": "application/json", "content-encoding": coding}
    answer = TestClient(app).post("/embed", content=bomb, headers=headers)
    message = "The body is compressed: send it without a content-encoding."
    assert (answer.status_code, answer.json()["error"]) == (422, message)


def test_a_body_that_says_it_is_plain_is_taken(app: FastAPI) -> None:
    headers = {"content-encoding": "identity"}
    assert TestClient(app).post("/embed", json=REQUEST, headers=headers).status_code == 200


def test_no_answer_is_to_be_guessed_at(app: FastAPI) -> None:
    client = TestClient(app)
    for answer in (client.get("/info"), client.get("/"), client.get("/x"), client.post("/embed")):
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


JSON = {"content-type": "application/json"}


@pytest.fixture
def roomy(settings: Settings) -> Iterator[TestClient]:
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
def test_refuses_a_body_of_too_many_items_before_it_is_parsed(
    roomy: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, content: bytes
) -> None:
    monkeypatch.setattr("app.routes.route.json", SimpleNamespace(loads=pytest.fail))
    status, kind, message = failure(roomy.post(path, content=content, headers=JSON))
    assert (status, kind) == (413, "TooLarge")
    assert message == (
        "The body holds more items than the 8 sentences of LATTEMIX_MAX_INPUTS need: send several "
        "requests, or raise it."
    )


@pytest.mark.parametrize("text", [', [{"' * 9000, "\\" * 40_000, '\\"' * 20_000, "words " * 9000])
def test_does_not_count_what_is_inside_a_text_as_items(roomy: TestClient, text: str) -> None:
    content = json.dumps({"inputs": [text + " dog", "a man"]}).encode()
    assert roomy.post("/embed", content=content, headers=JSON).status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_refuses_json_that_is_not_utf_8(roomy: TestClient, encoding: str) -> None:
    content = '{"inputs": "a dog"}'.encode(encoding)
    assert failure(roomy.post("/embed", content=content, headers=JSON))[2] == (
        "The body is not valid JSON."
    )
    escaped = '{"inputs": "\\"", "x": %s}' % ("[" + "[]," * 20_000 + "[]]")
    response = roomy.post("/embed", content=escaped.encode(encoding), headers=JSON)
    assert failure(response)[0] in (413, 422)


def test_accepts_a_byte_order_mark(roomy: TestClient) -> None:
    content = '{"inputs": "a dog"}'.encode("utf-8-sig")
    assert roomy.post("/embed", content=content, headers=JSON).status_code == 200


def test_parses_large_bodies_off_the_event_loop(
    roomy: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    loads = json.loads

    def noted(content: str) -> object:
        threads.append(threading.current_thread().name)
        return loads(content)

    monkeypatch.setattr("app.routes.route.json", SimpleNamespace(loads=noted))
    for words in (10, 10_000):
        content = b'{"inputs": "%s"}' % (b"dog " * words)
        assert roomy.post("/embed", content=content, headers=JSON).status_code == 200
    small, large = threads
    assert not small.startswith("lattemix")
    assert large.startswith("lattemix-pool")


def test_reports_one_error_for_many_wrong_items(roomy: TestClient) -> None:
    message = failure(roomy.post("/embed", json={"inputs": [1] * 5000}))[2]
    assert message == "inputs[0]: Input should be a valid string."


@pytest.mark.parametrize("path", ["/embed", "/similarity"])
def test_reports_one_error_for_many_unknown_fields(roomy: TestClient, path: str) -> None:
    unknown = {str(number): 0 for number in range(1000)}
    body = {"inputs": ["a"]} if path == "/embed" else {"inputs": unknown}
    message = failure(roomy.post(path, json=body | unknown))[2]
    assert re.fullmatch(r"(inputs\.source_sentence: Field required|0: Extra inputs.*).*", message)
    assert "(and 3 more)" in message or "more" not in message


TEXTS = st.text(alphabet='\\"[]{},: aé漢\n')
VALUES = st.recursive(
    TEXTS | st.none() | st.integers(),
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
)


def items_of(value: object) -> int:
    """Strings, lists and objects in a JSON value."""
    if isinstance(value, list):
        return 1 + sum(map(items_of, value))
    if isinstance(value, dict):
        return 1 + sum(1 + items_of(each) for each in value.values())
    return isinstance(value, str)


@given(st.lists(VALUES), st.booleans(), st.integers(1, 20))
def test_counts_the_items_of_a_body_whatever_its_strings_hold(
    value: list[object], ascii_only: bool, piece: int
) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    items = items_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "_PIECE", piece)
        patch.setattr(route, "_BYTES_PER_ITEM", 10**9)
        patch.setattr(route, "_ITEMS_PER_INPUT", 0)
        patch.setattr(route, "_OTHER_ITEMS", items)
        assert not route._has_more_items(content, 1)
        patch.setattr(route, "_OTHER_ITEMS", items - 1)
        assert route._has_more_items(content, 1)


def test_counts_the_bytes_outside_of_strings() -> None:
    limit = (3 * 8 + 100) * 64
    assert not route._has_more_items(b'["' + b"1, " * limit + b'"]', 8)
    assert not route._has_more_items(b" " * limit, 8)
    assert route._has_more_items(b" " * (limit + 1), 8)
