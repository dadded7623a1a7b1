"""`truncate` means the same on every route."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from tests.app.conftest import failure

LONG = "a sea " + "dog " * 20  # 24 tokens; the tiny model reads 16
ROUTES: dict[str, tuple[str, dict[str, Any], str]] = {
    "similarity": ("/similarity", {"pairs": [["a man", LONG]]}, "pairs[0][1]"),
    "embed": ("/embed", {"inputs": ["a man", LONG]}, "inputs[1]"),
    "openai": ("/v1/embeddings", {"input": ["a man", LONG]}, "input[1]"),
    "rank": ("/rank", {"query": "a man", "texts": [LONG]}, "texts[0]"),
    "rerank": ("/rerank", {"query": "a man", "texts": [LONG]}, "texts[0]"),
    "cohere": ("/v1/rerank", {"query": "a man", "documents": [LONG]}, "documents[0]"),
    "score": ("/v1/score", {"text_1": "a man", "text_2": LONG}, "text_2[0]"),
    "matrix": ("/matrix", {"inputs": ["a man", LONG]}, "inputs[1]"),
}
SOURCE = {"inputs": {"source_sentence": "a man", "sentences": [LONG]}}
every_route = pytest.mark.parametrize("route", ROUTES)


@contextmanager
def serving(settings: Settings, **changes: Any) -> Iterator[TestClient]:
    with TestClient(create_app(settings.model_copy(update=changes))) as client:
        yield client


@every_route
@pytest.mark.parametrize(
    ("truncate", "default", "truncated"),
    [
        (None, "window", "0"),
        (True, "window", "0"),
        ("window", "error", "0"),
        ("right", "window", "1"),
        ("left", "window", "1"),
        (None, "left", "1"),
        (True, "error", "1"),
    ],
)
def test_long_texts_are_read(
    settings: Settings, route: str, truncate: object, default: str, truncated: str
) -> None:
    path, body, _ = ROUTES[route]
    with serving(settings, truncate=default) as client:
        response = client.post(path, json=body | {"truncate": truncate})
    assert response.status_code == 200
    assert response.headers["x-truncated-inputs"] == truncated


@every_route
@pytest.mark.parametrize(
    ("truncate", "default"), [(False, "window"), ("error", "window"), (None, "error")]
)
def test_long_texts_are_rejected(
    settings: Settings, route: str, truncate: object, default: str
) -> None:
    path, body, name = ROUTES[route]
    with serving(settings, truncate=default) as client:
        status, kind, message = failure(client.post(path, json=body | {"truncate": truncate}))
    assert (status, kind) == (413, "TooLarge")
    assert message.startswith(f"{name} has 24 tokens, more than the limit of 16: shorten it, or")


@every_route
def test_rejects_texts_of_too_many_windows(settings: Settings, route: str) -> None:
    path, body, name = ROUTES[route]
    with serving(settings, max_windows=1) as client:
        status, kind, message = failure(client.post(path, json=body))
    assert (status, kind) == (413, "TooLarge")
    assert message == (
        f"{name} has 24 tokens, more than the 16 of LATTEMIX_MAX_WINDOWS=1: shorten it, or set "
        'truncate to "right".'
    )


@pytest.mark.parametrize("direction", ["left", "Right"])
@pytest.mark.parametrize("truncate", [None, True, "window"])
def test_direction_truncates(
    client: TestClient, encoder: Encoder, truncate: object, direction: str
) -> None:
    options = {"truncate": truncate, "truncation_direction": direction}
    body = client.post("/embed", json={"inputs": LONG, "format": "dense"} | options).json()
    expected = encoder.encode([LONG], "left" if direction == "left" else "right").mixtures
    np.testing.assert_allclose(body["embeddings"], expected, atol=1e-6)
    assert body["truncated"] == [True]
    response = client.post("/rerank", json=ROUTES["rerank"][1] | options)
    assert response.headers["x-truncated-inputs"] == "1"
    response = client.post("/similarity", json=SOURCE | {"parameters": options})
    assert response.headers["x-truncated-inputs"] == "1"


@pytest.mark.parametrize("truncate", [False, "error"])
def test_direction_does_not_override_a_rejection(client: TestClient, truncate: object) -> None:
    options = {"truncate": truncate, "truncation_direction": "left"}
    assert failure(client.post("/embed", json={"inputs": LONG} | options))[0] == 413
    response = client.post("/similarity", json=SOURCE | {"parameters": options})
    assert failure(response)[2].startswith("inputs.sentences[0] has 24 tokens")


@pytest.mark.parametrize("route", ["similarity", "rank", "matrix"])
def test_direction_is_unknown_to_other_routes(client: TestClient, route: str) -> None:
    path, body, _ = ROUTES[route]
    status, _, message = failure(client.post(path, json=body | {"truncation_direction": "left"}))
    assert (status, message[:20]) == (422, "truncation_direction")


def test_windows_give_the_mixtures_of_the_library(client: TestClient, encoder: Encoder) -> None:
    body = client.post("/embed", json={"inputs": ["a man", LONG], "format": "dense"}).json()
    expected = encoder.encode(["a man", LONG], "window")
    np.testing.assert_allclose(body["embeddings"], expected.mixtures, atol=1e-6)
    assert (body["tokens"], body["truncated"]) == (expected.tokens, [False, False])


def test_explain_rejects_windows(client: TestClient) -> None:
    request = {"pair": ["a man", "a dog"], "truncate": "window"}
    status, kind, message = failure(client.post("/explain", json=request))
    assert (status, kind) == (422, "Validation")
    assert "an explanation needs all tokens in one window" in message


@pytest.mark.parametrize(
    ("truncate", "default", "like"),
    [(None, "window", "right"), (True, "window", "right"), (None, "left", "left")],
)
def test_explain_truncates_by_default(
    settings: Settings, truncate: object, default: str, like: str
) -> None:
    request = {"pair": ["a man", LONG]}
    with serving(settings, truncate=default) as client:
        body = client.post("/explain", json=request | {"truncate": truncate}).json()
        assert body == client.post("/explain", json=request | {"truncate": like}).json()
    assert body["truncated"] == [False, True]


def test_info_reports_whether_long_texts_are_accepted(settings: Settings) -> None:
    for default, expected in (("window", True), ("error", False)):
        with serving(settings, truncate=default) as client:
            assert client.get("/info").json()["auto_truncate"] is expected
