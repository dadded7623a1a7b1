"""Rerankers of other services."""

import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from tests.app.conftest import failure

QUERY = "a man is eating"
TEXTS = ["the sea was calm", "someone is having lunch", "a man is eating"]


def ranked(client: TestClient) -> list[tuple[int, float]]:
    body = client.post("/rank", json={"query": QUERY, "texts": TEXTS}).json()
    return [(result["index"], result["score"]) for result in body["results"]]


@pytest.mark.parametrize("version", ["1", "2"])
def test_rerank_orders_documents_like_rank(
    client: TestClient, encoder: Encoder, version: str
) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1], "title": "ignored"}, TEXTS[2]]
    request = {"query": QUERY, "documents": documents, "model": "tiny", "rank_fields": ["text"]}
    body = client.post(f"/v{version}/rerank", json=request).json()
    results = [(result["index"], result["relevance_score"]) for result in body["results"]]
    assert results == ranked(client)
    assert all("document" not in result for result in body["results"])
    assert (body["model"], body["fingerprint"]) == ("tiny", encoder.manifest.fingerprint)
    assert body["meta"]["api_version"] == {"version": version}
    assert body["usage"]["total_tokens"] == sum(encoder.encode([QUERY, *TEXTS]).tokens)


def test_rerank_without_a_version_takes_both_bodies(client: TestClient) -> None:
    body = client.post("/rerank", json={"query": QUERY, "documents": TEXTS}).json()
    assert [(row["index"], row["relevance_score"]) for row in body["results"]] == ranked(client)
    rows = client.post("/rerank", json={"query": QUERY, "texts": TEXTS}).json()
    assert [(row["index"], row["score"]) for row in rows] == ranked(client)


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (2, 2), (9, 3), (0, 3), (None, 3)])
def test_rerank_returns_the_first_documents(
    client: TestClient, top_n: int | None, count: int
) -> None:
    request = {"query": QUERY, "documents": TEXTS, "top_n": top_n, "return_documents": True}
    results = client.post("/v2/rerank", json=request).json()["results"]
    assert [result["document"] for result in results] == [
        {"text": TEXTS[index]} for index, _ in ranked(client)[:count]
    ]
    request = {"query": QUERY, "texts": TEXTS, "top_n": top_n}
    assert len(client.post("/rerank", json=request).json()) == count


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"documents": []}, 400, "documents is empty"),
        ({"documents": ["a", " "]}, 400, "documents[1] is empty"),
        ({"documents": [{"title": "a"}]}, 422, "documents[0].text: Field required"),
        ({"documents": ["a", {"text": 1}]}, 422, "documents[1].text: Input should be a valid"),
        ({"documents": ["a", 1]}, 422, "documents[1]: should be a string or an object with a text"),
        ({"documents": "a"}, 422, "documents: Input should be a valid list"),
        ({"top_n": -1}, 422, "top_n: Input should be greater than or equal to 0"),
        ({"query": " "}, 400, "query is empty"),
        ({"model": "x"}, 404, "There is no model 'x' here: choose tiny."),
        ({"documents": ["a"] * 8}, 413, "documents holds 9 sentences"),
    ],
)
def test_rejects_invalid_requests(
    client: TestClient, body: dict[str, object], status: int, text: str
) -> None:
    request = {"query": QUERY, "documents": TEXTS} | body
    response = client.post("/v2/rerank", json=request)
    assert (response.status_code, list(response.json())) == (status, ["message"])
    assert response.json()["message"].startswith(text)
    assert failure(client.post("/v1/rerank", json=request))[2].startswith(text)


def scores(client: TestClient, body: dict[str, object]) -> list[float]:
    answer = client.post("/v1/score", json=body).json()
    assert [row["index"] for row in answer["data"]] == [*range(len(answer["data"]))]
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    return [row["score"] for row in answer["data"]]


def test_score_compares_one_with_all_or_pairs(client: TestClient) -> None:
    def expected(pairs: list[list[str]]) -> list[float]:
        rows = client.post("/similarity", json={"pairs": pairs}).json()["similarities"]
        return [pytest.approx(row["centred"], abs=1e-6) for row in rows]

    one_to_all = expected([[QUERY, text] for text in TEXTS])
    assert scores(client, {"text_1": QUERY, "text_2": TEXTS}) == one_to_all
    assert scores(client, {"queries": QUERY, "documents": TEXTS, "user": "u"}) == one_to_all
    assert scores(client, {"queries": QUERY, "items": TEXTS}) == one_to_all
    assert scores(client, {"data_1": QUERY, "data_2": TEXTS}) == one_to_all
    pairs = {"text_1": TEXTS[::-1], "text_2": TEXTS}
    assert scores(client, pairs) == expected(
        [[a, b] for a, b in zip(TEXTS[::-1], TEXTS, strict=True)]
    )


@pytest.mark.parametrize(
    ("body", "expected", "text"),
    [
        ({"text_1": "a"}, (422, "Validation"), "text_2: Field required"),
        ({"text_1": ["a", "b"], "text_2": ["c"]}, (422, "Validation"), "text_2 holds 1 texts"),
        ({"text_1": [], "text_2": ["c"]}, (400, "Empty"), "text_1 is empty"),
        ({"text_1": "a", "text_2": []}, (400, "Empty"), "text_2 is empty"),
        ({"text_1": "a", "text_2": ["c", " "]}, (400, "Empty"), "text_2[1] is empty"),
        ({"text_1": " ", "text_2": "c"}, (400, "Empty"), "text_1[0] is empty"),
    ],
)
def test_rejects_invalid_score_requests(
    client: TestClient, body: dict[str, object], expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.post("/v1/score", json=body))
    assert (status, kind) == expected
    assert message.startswith(text)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": " "}, "query"),
        ({"query": "dog " * 20, "truncate": "error"}, "query"),
        ({"query": "x" * 2_000}, "query"),
        ({"documents": ["a", " "]}, "documents"),
        ({"documents": []}, "documents"),
    ],
)
def test_param_is_the_field_that_the_message_names(
    settings: Settings, body: dict[str, object], param: str
) -> None:
    limited = settings.model_copy(update={"max_characters": 1_000})
    with TestClient(create_app(limited)) as client:
        request = {"query": QUERY, "documents": TEXTS} | body
        error = client.post("/v1/rerank", json=request).json()["error"]
    assert error["message"].startswith(param)
    assert error["param"] == param
