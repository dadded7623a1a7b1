import asyncio
import threading
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app import __version__
from app.engine import Encoder
from app.engine.worker import Worker
from app.server import create_app
from app.settings import Settings
from app.similarity import cosine, js

JSON = {"content-type": "application/json"}


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def failure(response: httpx.Response) -> tuple[int, str, str]:
    body = response.json()
    assert set(body) == {"error", "error_type"}
    return response.status_code, body["error_type"], body["error"]


def test_similarity_is_what_the_engine_and_the_metrics_say(
    client: TestClient, encoder: Encoder
) -> None:
    pairs = [
        ["a man is eating", "someone is having lunch"],
        ["a man is eating", "the sea was calm"],
    ]
    body = client.post("/similarity", json={"pairs": pairs, "metrics": ["cosine", "js"]}).json()
    assert body["model"] == "tiny"
    a, b = (encoder.encode([pair[i] for pair in pairs]).mixtures for i in range(2))
    assert [s["cosine"] for s in body["similarities"]] == pytest.approx(cosine(a, b), abs=1e-6)
    assert [s["js"] for s in body["similarities"]] == pytest.approx(js(a, b), abs=1e-6)
    assert set(body["similarities"][0]) == {"cosine", "js", "truncated"}


def test_cosine_and_js_are_the_default_metrics(client: TestClient) -> None:
    (scores,) = client.post("/similarity", json={"pairs": [["a", "a"]]}).json()["similarities"]
    assert scores == {"cosine": pytest.approx(1), "js": pytest.approx(1), "truncated": [False] * 2}


def test_every_metric_can_be_asked_for(client: TestClient) -> None:
    metrics = client.get("/info").json()["metrics"]
    assert metrics == ["cosine", "js", "l2", "bhattacharyya", "centred"]
    request = {"pairs": [["a dog", "a man"]], "metrics": metrics}
    (scores,) = client.post("/similarity", json=request).json()["similarities"]
    assert set(scores) == {*metrics, "truncated"}


def test_a_cut_sentence_is_reported_in_its_place(client: TestClient) -> None:
    request = {"pairs": [["dog", "dog " * 20], ["dog " * 20, "dog"]]}
    first, second = client.post("/similarity", json=request).json()["similarities"]
    assert (first["truncated"], second["truncated"]) == ([False, True], [True, False])


def test_embed_returns_the_mixtures(client: TestClient, encoder: Encoder) -> None:
    texts = ["a man is eating", "dog " * 20]
    body = client.post("/embed", json={"inputs": texts}).json()
    assert (body["model"], body["shape"]) == ("tiny", [4, 5])
    assert (body["tokens"], body["truncated"]) == ([6, 16], [False, True])
    np.testing.assert_allclose(body["embeddings"], encoder.encode(texts).mixtures, atol=1e-6)


def test_embed_takes_a_single_sentence(client: TestClient) -> None:
    body = client.post("/embed", json={"inputs": "a man is eating"}).json()
    assert np.shape(body["embeddings"]) == (1, 4, 5)


def test_health_and_info(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    info = client.get("/info").json()
    assert info["model"] == "tiny"
    assert (info["latent_dims"], info["classes"], info["provider"]) == (4, 5, "cpu")
    assert (info["max_input_length"], info["max_client_batch_size"]) == (16, 8)
    assert info["version"] == __version__
    assert info["parity"]["largest_difference"] < 1e-5


@pytest.mark.parametrize(
    ("path", "body", "expected", "says"),
    [
        ("/similarity", {"pairs": []}, (400, "Empty"), "pairs is empty"),
        (
            "/similarity",
            {"pairs": [["a", " \t"]]},
            (400, "Empty"),
            "pairs[0][1] is empty: the model finds no words",
        ),
        ("/embed", {"inputs": []}, (400, "Empty"), "inputs is empty"),
        ("/embed", {"inputs": ["a", ""]}, (400, "Empty"), "inputs[1] is empty"),
        ("/similarity", {}, (422, "Validation"), "pairs: Field required"),
        ("/similarity", [], (422, "Validation"), "The body should be a JSON object, sent with"),
        ("/embed", {"inputs": ["a", " ", 1, 2]}, (422, "Validation"), "inputs[2]: Input should be"),
        ("/embed", {"inputs": "a", "k" * 500: 1}, (422, "Validation"), "k…: Extra inputs"),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": ["js"] * 6},
            (422, "Validation"),
            "metrics: List should have at most 5 items",
        ),
        (
            "/embed",
            {"inputs": ["a", "b" * 501]},
            (413, "TooLarge"),
            "inputs[1] has 501 characters, more than the 500 of LATTEMIX_MAX_CHARACTERS",
        ),
        ("/similarity", {"pairs": "a"}, (422, "Validation"), "pairs: Input should be a valid list"),
        ("/similarity", {"pairs": [["a"]]}, (422, "Validation"), "pairs[0][1]: Field required"),
        ("/similarity", {"pairs": [["a", 1]]}, (422, "Validation"), "pairs[0][1]: Input should be"),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": ["euclid"]},
            (422, "Validation"),
            "metrics[0]: Input should be 'cosine', 'js', 'l2', 'bhattacharyya' or 'centred'",
        ),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": []},
            (422, "Validation"),
            "metrics: List should have at least 1 item",
        ),
        ("/embed", {"inputs": ["a"], "x": 1}, (422, "Validation"), "x: Extra inputs are not"),
        (
            "/embed",
            {"inputs": {"a": 1}},
            (422, "Validation"),
            "inputs: Input should be a valid list",
        ),
        (
            "/similarity",
            {"pairs": [["a", "b"]] * 5},
            (413, "TooLarge"),
            "pairs holds 10 sentences, more than the 8 of LATTEMIX_MAX_INPUTS",
        ),
        (
            "/embed",
            {"inputs": "long " * 1000},
            (413, "TooLarge"),
            "The body is larger than the 4,096 bytes of LATTEMIX_MAX_BODY_BYTES",
        ),
    ],
)
def test_bad_input_gets_its_code_and_a_sentence(
    client: TestClient, path: str, body: object, expected: tuple[int, str], says: str
) -> None:
    status, kind, message = failure(client.post(path, json=body))
    assert (status, kind) == expected
    assert says in message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"inputs": "\\ud800"}'])
def test_a_body_that_is_no_text(client: TestClient, content: bytes) -> None:
    response = client.post("/embed", content=content, headers=JSON)
    assert failure(response)[:2] == (422, "Validation")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\u200b\u200d", "שלום", "🙂", "\u202etxt"])
def test_odd_but_real_text_is_answered(client: TestClient, text: str) -> None:
    response = client.post("/embed", json={"inputs": text})
    assert response.status_code == 200
    assert np.isfinite(response.json()["embeddings"]).all()


def test_a_body_is_refused_while_it_streams(settings: Settings) -> None:
    app, taken = create_app(settings), 0
    answer: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": taken < 1000}

    async def send(message: dict[str, object]) -> None:
        answer.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}
    asyncio.run(app(scope | {"query_string": b"", "root_path": ""}, receive, send))
    assert answer[0]["status"] == 413
    assert taken == 5  # 5 x 1,024 is the first to exceed 4,096


def test_a_million_wrong_items_are_one_error(settings: Settings) -> None:
    # Each error costs memory and time on the event loop; only the first is worth making.
    roomy = settings.model_copy(update={"max_body_bytes": 4_000_000})
    content = b'{"inputs": [' + b"1," * 1_000_000 + b"1]}"
    with TestClient(create_app(roomy)) as client:
        response = client.post("/embed", content=content, headers=JSON)
    assert failure(response)[2] == "inputs[0]: Input should be a valid string."


def test_a_form_is_told_what_to_send(client: TestClient) -> None:
    message = failure(client.post("/embed", data={"inputs": "a"}))[2]
    assert message.endswith("sent with content-type: application/json.")


def test_unknown_places_and_methods(client: TestClient) -> None:
    assert failure(client.get("/nowhere"))[:2] == (404, "NotFound")
    response = client.get("/similarity")
    assert failure(response)[:2] == (405, "MethodNotAllowed")
    assert response.headers["allow"] == "POST"


def test_a_failing_model_is_the_backends_fault(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Encoder, texts: list[str]) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Encoder, "encode", fail)
    response = client.post("/embed", json={"inputs": "secret sentence"})
    assert failure(response)[:2] == (424, "Backend")
    assert "out of memory" not in response.text
    assert "out of memory" in caplog.text
    assert "secret sentence" not in caplog.text


def test_a_fault_of_our_own_has_the_same_shape(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(client.app.state, "service")  # type: ignore[attr-defined]
    assert failure(client.get("/info"))[:2] == (500, "Internal")


def test_a_model_without_a_centre_refuses_the_centred_metric(client: TestClient) -> None:
    encoder = client.app.state.service.encoder  # type: ignore[attr-defined]
    encoder.centre = None
    assert "centred" not in client.get("/info").json()["metrics"]
    request = {"pairs": [["a", "b"]], "metrics": ["centred"]}
    status, kind, message = failure(client.post("/similarity", json=request))
    assert (status, kind) == (422, "Validation")
    assert message.startswith("metrics: Metric 'centred' needs")


def test_health_answers_and_work_is_refused_while_the_model_is_busy(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"max_waiting": 1}))
    release = threading.Event()
    service = app.state.service
    encode = service.encoder.encode

    def stuck(texts: list[str]) -> object:
        release.wait(10)
        return encode(texts)

    service.encoder.encode = stuck

    async def scenario() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            request = {"inputs": "a"}
            accepted = [asyncio.create_task(client.post("/embed", json=request)) for _ in range(2)]
            while service.worker._pending < 2:
                await asyncio.sleep(0.001)
            assert (await client.get("/health")).status_code == 200
            refused = await client.post("/embed", json=request)
            assert failure(refused)[:2] == (429, "Overloaded")
            assert "LATTEMIX_MAX_WAITING" in refused.json()["error"]
            assert refused.headers["retry-after"] == "1"
            release.set()
            assert [(await task).status_code for task in accepted] == [200, 200]

    asyncio.run(scenario())


def test_the_worker_frees_its_place_when_a_job_fails() -> None:
    worker = Worker(max_waiting=1)

    async def scenario() -> None:
        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                await worker.run(lambda: 1 / 0)
        assert await worker.run(lambda: 7) == 7

    asyncio.run(scenario())
    worker.close()


def test_the_openapi_document_names_every_error(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/similarity", "/embed", "/health", "/info"}
    for path in ("/similarity", "/embed"):
        assert {"200", "400", "413", "422", "424", "429"} <= set(paths[path]["post"]["responses"])
