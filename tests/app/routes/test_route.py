"""The way to the model's endpoints."""

import gzip
import json
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from app.routes import route
from app.server import create_app
from app.settings import Settings

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
