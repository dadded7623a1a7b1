from io import BytesIO

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import failure

QUERY = "a man is eating"
OTHERS = ["the sea was calm", "someone is having lunch", "a man is eating", "dog " * 20]


def scores(client: TestClient, metric: str, pairs: list[list[str]]) -> list[float]:
    request = {"pairs": pairs, "metrics": [metric], "truncate": "right"}
    response = client.post("/similarity", json=request).json()
    return [pair[metric] for pair in response["similarities"]]


@pytest.mark.parametrize("metric", ["cosine", "js", "l2", "bhattacharyya", "centred"])
def test_orders_texts_by_similarity(client: TestClient, metric: str) -> None:
    request = {"query": QUERY, "texts": OTHERS, "metric": metric}
    body = client.post("/rank", json=request | {"truncate": "right"}).json()
    expected = scores(client, metric, [[QUERY, other] for other in OTHERS])
    order = np.argsort(expected)[::-1].tolist()
    assert [result["index"] for result in body["results"]] == order
    assert [result["score"] for result in body["results"]] == pytest.approx(
        [expected[i] for i in order], abs=1e-6
    )
    assert (body["model"], body["metric"]) == ("tiny", metric)
    assert body["tokens"] == {"query": 6, "texts": [6, 6, 6, 22]}
    assert body["truncated"] == {"query": False, "texts": [False, False, False, True]}


def test_default_metric_is_the_recommended_one(client: TestClient) -> None:
    body = client.post("/rank", json={"query": QUERY, "texts": OTHERS}).json()
    assert body["metric"] == client.get("/info").json()["recommended_metric"]


def test_returns_top_k_results_with_texts(client: TestClient) -> None:
    request = {"query": QUERY, "texts": OTHERS, "top_k": 2, "return_texts": True}
    results = client.post("/rank", json=request).json()["results"]
    assert [result["text"] for result in results] == [OTHERS[r["index"]] for r in results]
    assert len(results) == 2
    assert results[0]["text"] == QUERY


def test_ties_keep_their_order(client: TestClient) -> None:
    request = {"query": QUERY, "texts": ["a dog"] * 4}
    results = client.post("/rank", json=request).json()["results"]
    assert [result["index"] for result in results] == [0, 1, 2, 3]


def test_rerank_returns_a_list(client: TestClient) -> None:
    texts = OTHERS[:3]
    request = {"query": QUERY, "texts": texts, "return_text": True, "raw_scores": True}
    results = client.post("/rerank", json=request).json()
    ranked = client.post("/rank", json={"query": QUERY, "texts": texts}).json()["results"]
    assert results == [
        {"index": r["index"], "score": r["score"], "text": texts[r["index"]]} for r in ranked
    ]
    assert "text" not in client.post("/rerank", json={"query": "a", "texts": ["b"]}).json()[0]


def test_matrix_returns_every_pair_once_most_similar_first(client: TestClient) -> None:
    inputs = [*OTHERS, QUERY]  # the third and the last are equal
    body = client.post(
        "/matrix", json={"inputs": inputs, "metric": "js", "truncate": "right"}
    ).json()
    assert body["count"] == len(body["pairs"]) == 10
    assert body["pairs"][0] == [2, 4]
    assert body["scores"] == sorted(body["scores"], reverse=True)
    texts = [[inputs[i], inputs[j]] for i, j in body["pairs"]]
    assert all(i < j for i, j in body["pairs"])
    first, second = texts[:4], texts[4:8]
    expected = scores(client, "js", first) + scores(client, "js", second)
    assert body["scores"][:8] == pytest.approx(expected, abs=2e-6)
    assert body["truncated"] == [False, False, False, True, False]


def test_matrix_applies_threshold_and_top_k(client: TestClient) -> None:
    everything = client.post("/matrix", json={"inputs": OTHERS, "metric": "cosine"}).json()
    middle = everything["scores"][2]
    request = {"inputs": OTHERS, "metric": "cosine", "threshold": middle, "top_k": 2}
    body = client.post("/matrix", json=request).json()
    assert (body["count"], body["pairs"]) == (3, everything["pairs"][:2])
    none = client.post("/matrix", json={"inputs": OTHERS, "threshold": 2}).json()
    assert (none["count"], none["pairs"], none["scores"]) == (0, [], [])


def test_matrix_of_one_sentence_is_empty(client: TestClient) -> None:
    assert client.post("/matrix", json={"inputs": ["a"]}).json()["pairs"] == []


def test_matrix_as_npy(client: TestClient) -> None:
    request = {"inputs": OTHERS, "metric": "cosine", "truncate": "right"}
    response = client.post("/matrix", json=request, headers={"accept": "application/x-npy"})
    table = np.load(BytesIO(response.content), allow_pickle=False)
    assert table.shape == (4, 4)
    np.testing.assert_allclose(np.diag(table), 1, atol=1e-6)
    expected = scores(client, "cosine", [[OTHERS[0], other] for other in OTHERS])
    np.testing.assert_allclose(table[0], expected, atol=1e-6)


@pytest.mark.parametrize("threshold", ["NaN", "1e999"])
def test_rejects_a_threshold_that_is_not_finite(client: TestClient, threshold: str) -> None:
    content = f'{{"inputs": ["a"], "threshold": {threshold}}}'
    headers = {"content-type": "application/json"}
    response = client.post("/matrix", content=content, headers=headers)
    assert failure(response)[2] == "threshold: Input should be a finite number."


@pytest.mark.parametrize(
    ("path", "body", "expected", "text"),
    [
        ("/rank", {"query": "a", "texts": []}, (400, "Empty"), "texts is empty"),
        ("/rank", {"query": " ", "texts": ["a"]}, (400, "Empty"), "query is empty"),
        ("/rank", {"query": "a", "texts": ["a", ""]}, (400, "Empty"), "texts[1] is"),
        ("/rank", {"query": "a", "texts": "b"}, (422, "Validation"), "texts: Input"),
        (
            "/rank",
            {"query": "a", "texts": ["b"], "top_k": 0},
            (422, "Validation"),
            "top_k: Input should be greater than or equal to 1",
        ),
        ("/rank", {"query": "a", "texts": ["b"] * 8}, (413, "TooLarge"), "holds 9 sentences"),
        ("/rerank", {"query": "a", "texts": []}, (400, "Empty"), "texts is empty"),
        (
            "/rerank",
            {"query": "dog " * 20, "texts": ["b"], "truncate": False},
            (413, "TooLarge"),
            "query has 22",
        ),
        ("/rerank", {"query": "a"}, (422, "Validation"), "texts: Field required"),
        ("/matrix", {"inputs": []}, (400, "Empty"), "inputs is empty"),
        (
            "/matrix",
            {"inputs": ["a"], "threshold": "x"},
            (422, "Validation"),
            "threshold: should be a number",
        ),
        ("/matrix", {"inputs": ["a"] * 9}, (413, "TooLarge"), "inputs holds 9 sentences"),
    ],
)
def test_rejects_invalid_requests(
    client: TestClient, path: str, body: object, expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.post(path, json=body))
    assert (status, kind) == expected
    assert text in message
