import pytest
from fastapi.testclient import TestClient

from lattemix.encoder import Encoder
from lattemix.similarity import similarity
from tests.app.conftest import failure


def test_returns_the_similarity_of_each_pair(client: TestClient, encoder: Encoder) -> None:
    pairs = [
        ["a man is eating", "someone is having lunch"],
        ["a man is eating", "the sea was calm"],
    ]
    body = client.post("/similarity", json={"pairs": pairs, "metrics": ["cosine", "js"]}).json()
    assert (body["model"], body["metric"]) == ("tiny", "cosine")
    a, b = (encoder.encode([pair[i] for pair in pairs]).mixtures for i in range(2))
    for metric in ("cosine", "js"):
        values = [scores[metric] for scores in body["similarities"]]
        assert values == pytest.approx(similarity(metric, a, b), abs=1e-6)
    assert set(body["similarities"][0]) == {"cosine", "js"}


@pytest.mark.parametrize("metrics", [{}, {"metrics": None}])
def test_default_metric_is_the_recommended_one(
    client: TestClient, metrics: dict[str, None]
) -> None:
    body = client.post("/similarity", json={"pairs": [["a", "a"]]} | metrics).json()
    assert body["metric"] == client.get("/info").json()["recommended_metric"] == "centred"
    assert body["similarities"] == [{"centred": pytest.approx(1)}]


def test_supports_every_metric(client: TestClient) -> None:
    metrics = client.get("/info").json()["metrics"]
    assert metrics == ["centred", "cosine", "js", "l2", "bhattacharyya"]
    request = {"pairs": [["a dog", "a man"]], "metrics": metrics}
    (scores,) = client.post("/similarity", json=request).json()["similarities"]
    assert set(scores) == {*metrics}


def test_reports_truncation_per_sentence(client: TestClient) -> None:
    request = {"pairs": [["dog", "dog " * 20], ["dog " * 20, "dog"]], "truncate": "right"}
    body = client.post("/similarity", json=request).json()
    assert body["truncated"] == [[False, True], [True, False]]


def test_counts_tokens_before_truncation(client: TestClient) -> None:
    request = {"pairs": [["dog", "dog " * 20], ["dog " * 20, "dog"]]}
    assert client.post("/similarity", json=request).json()["tokens"] == [[3, 22], [22, 3]]


@pytest.mark.parametrize("truncate", [False, "error"])
def test_rejects_long_sentences_on_request(client: TestClient, truncate: object) -> None:
    request = {"pairs": [["dog", "dog " * 20]], "truncate": truncate}
    status, kind, message = failure(client.post("/similarity", json=request))
    assert (status, kind) == (413, "TooLarge")
    assert message.startswith("pairs[0][1] has 22 tokens, more than the limit of 16")


def test_truncates_either_side(client: TestClient) -> None:
    request = {"pairs": [["a sea " + "dog " * 20, "dog " * 14]], "metrics": ["cosine"]}
    scores = {}
    for side in ("right", "left"):
        response = client.post("/similarity", json=request | {"truncate": side}).json()
        scores[side] = response["similarities"][0]["cosine"]
    assert scores["left"] == pytest.approx(1)
    assert scores["right"] < 0.9999


SOURCE = {"source_sentence": "a man is eating", "sentences": ["a dog", "the sea was calm"]}


def test_source_and_sentences_return_a_list(client: TestClient) -> None:
    scores = client.post("/similarity", json={"inputs": SOURCE, "parameters": {}}).json()
    pairs = [[SOURCE["source_sentence"], other] for other in SOURCE["sentences"]]
    metric = client.get("/info").json()["recommended_metric"]
    request = {"pairs": pairs, "metrics": [metric]}
    expected = client.post("/similarity", json=request).json()["similarities"]
    assert scores == pytest.approx([score[metric] for score in expected], abs=1e-6)


def test_source_is_compared_by_the_requested_metric(client: TestClient) -> None:
    request = {"inputs": SOURCE, "parameters": {"metric": "l2"}}
    assert all(score < 0 for score in client.post("/similarity", json=request).json())


@pytest.mark.parametrize(
    ("inputs", "parameters", "expected", "text"),
    [
        ({"sentences": []}, {}, (400, "Empty"), "inputs.sentences is empty"),
        ({"sentences": ["a", " "]}, {}, (400, "Empty"), "inputs.sentences[1] is empty"),
        ({"source_sentence": ""}, {}, (400, "Empty"), "inputs.source_sentence is empty"),
        ({"sentences": ["a", 1]}, {}, (422, "Validation"), "inputs.sentences[1]: Input should"),
        ({}, {"metric": "x"}, (422, "Validation"), "parameters.metric: Input should be 'cosine'"),
        ({}, {"x": 1}, (422, "Validation"), "parameters.x: Extra inputs"),
        (
            {"source_sentence": "dog " * 20},
            {"truncate": False},
            (413, "TooLarge"),
            "source_sentence has 22 tokens",
        ),
        ({"sentences": ["a"] * 8}, {}, (413, "TooLarge"), "inputs.sentences holds 9 sentences"),
    ],
)
def test_rejects_invalid_source_requests(
    client: TestClient,
    inputs: dict[str, object],
    parameters: dict[str, object],
    expected: tuple[int, str],
    text: str,
) -> None:
    body = {"inputs": SOURCE | inputs, "parameters": parameters}
    status, kind, message = failure(client.post("/similarity", json=body))
    assert (status, kind) == expected
    assert text in message
