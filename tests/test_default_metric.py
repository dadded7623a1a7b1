"""Every entry point compares by the model's recommended metric, unless another is requested."""

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.schemas.common import METRIC, METRICS
from app.server import create_app
from app.settings import Settings
from lattemix import Model, load
from model_store import Metric, Store
from tests.lattemix.client.conftest import Kind, both, call
from tests.lattemix.conftest import run
from tests.tiny import SENTENCES

A, B, *OTHERS = SENTENCES

ENDPOINTS: dict[str, tuple[str, dict[str, Any], Callable[[Metric], dict[str, Any]]]] = {
    "pairs": ("/similarity", {"pairs": [[A, B]]}, lambda metric: {"metrics": [metric]}),
    "source": (
        "/similarity",
        {"inputs": {"source_sentence": A, "sentences": [B]}},
        lambda metric: {"parameters": {"metric": metric}},
    ),
    "rank": ("/rank", {"query": A, "texts": [B]}, lambda metric: {"metric": metric}),
    "documents": (
        "/v1/rerank",
        {"query": A, "documents": [B]},
        lambda metric: {"metric": metric},
    ),
    "score": ("/v1/score", {"text_1": A, "text_2": B}, lambda metric: {"metric": metric}),
    "rerank": ("/rerank", {"query": A, "texts": [B]}, lambda metric: {"metric": metric}),
    "matrix": ("/matrix", {"inputs": [A, B]}, lambda metric: {"metric": metric}),
    "explain": ("/explain", {"pair": [A, B]}, lambda metric: {"metric": metric}),
}
METHODS: dict[str, tuple[str, list[Any], Callable[[Metric], dict[str, Any]]]] = {
    "two sentences": ("similarity", [A, B], lambda metric: {"metric": metric}),
    "pairs": ("similarity", [[(A, B)]], lambda metric: {"metric": metric}),
    "rank": ("rank", [A, OTHERS], lambda metric: {"metric": metric}),
    "matrix": ("matrix", [SENTENCES], lambda metric: {"metric": metric}),
    "explain": ("explain", [A, B], lambda metric: {"metric": metric}),
    "iter_similarity": ("iter_similarity", [[(A, B)]], lambda metric: {"metrics": [metric]}),
    "iter_rank": ("iter_rank", [A, OTHERS], lambda metric: {"metric": metric}),
}

every_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS)
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
both_metrics = pytest.mark.parametrize("metric", ["js", "centred"], scope="module")
dot_products = pytest.mark.parametrize(
    "metric", ["centred", "bhattacharyya", "cosine"], scope="module"
)


@pytest.fixture(scope="module")
def recommending(
    store: Store, metric: Metric, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a tiny model that recommends the metric."""
    root = tmp_path_factory.mktemp(metric) / "store"
    shutil.copytree(store.root, root)
    path = root / "tiny" / "fp32" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recommended_metric": metric}))
    return Settings(store=root, model="tiny")


@pytest.fixture(scope="module")
def client(recommending: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(recommending)) as client:
        yield client


@pytest.fixture(scope="module")
def model(recommending: Settings) -> Model:
    return load("tiny", store=recommending.store, provider="cpu")


@pytest.fixture
def commands(recommending: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the command line."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("LATTEMIX_STORE", str(recommending.store))
    monkeypatch.setenv("LATTEMIX_MODEL", "tiny")


def other(metric: Metric) -> Metric:
    return "cosine" if metric == "js" else "js"


@both_metrics
@every_endpoint
def test_endpoints(client: TestClient, metric: Metric, endpoint: Any) -> None:
    path, body, options = endpoint

    def post(chosen: dict[str, Any]) -> Any:
        answer = client.post(path, json=body | chosen).json()
        fields = {"id", "created"}  # of the request
        return (
            answer
            if isinstance(answer, list)
            else {name: value for name, value in answer.items() if name not in fields}
        )

    default = post({})
    assert default == post(options(metric))
    assert default != post(options(other(metric)))
    if "metric" in default:
        assert default["metric"] == metric


@both_metrics
@every_method
def test_library(model: Model, metric: Metric, method: Any) -> None:
    name, arguments, options = method

    def result(**chosen: Any) -> Any:
        returned = getattr(model, name)(*arguments, **chosen)
        return list(returned) if isinstance(returned, Iterator) else returned

    assert result() == result(**options(metric))
    assert result() != result(**options(other(metric)))


@both
@both_metrics
@every_method
def test_clients(client: TestClient, metric: Metric, kind: Kind, method: Any) -> None:
    name, arguments, options = method
    server = httpx.ASGITransport(client.app)
    default = call(kind, server, name, *arguments)
    assert default == call(kind, server, name, *arguments, **options(metric))
    assert default != call(kind, server, name, *arguments, **options(other(metric)))


@both_metrics
@pytest.mark.usefixtures("commands")
def test_commands_print_it(capsys: pytest.CaptureFixture[str], model: Model, metric: str) -> None:
    score = f"{model.similarity(A, B):.4f}"
    _, out, _ = run(capsys, "similarity", A, B)
    assert out.split() == [metric, score]
    _, out, _ = run(capsys, "explain", A, B)
    assert out.split()[:2] == [metric, score]
    _, out, _ = run(capsys, "rank", A, B)
    assert out.split()[0] == score


@both_metrics
@pytest.mark.usefixtures("commands")
def test_commands_write_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Model, metric: str
) -> None:
    source, scores, folder = tmp_path / "in.csv", tmp_path / "out.csv", tmp_path / "scored"
    source.write_text(f"a,b\n{A},{B}\n")
    run(capsys, "similarity", "--file", str(source), "--out", str(scores))
    run(capsys, "score", str(source), str(folder))
    for file, added in ((scores, ["error"]), (*folder.glob("part-*"), ["truncated", "error"])):
        with file.open(newline="") as rows:
            (row,) = csv.DictReader(rows)
        assert [*row] == ["a", "b", metric, *added, "model", "fingerprint"]
        assert float(row[metric]) == pytest.approx(model.similarity(A, B), abs=1e-6)


@dot_products
def test_dot_product_of_openai_vectors(client: TestClient, metric: Metric) -> None:
    data = client.post("/v1/embeddings", json={"input": SENTENCES}).json()["data"]
    vectors = np.array([item["embedding"] for item in data])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    pairs = [[a, b] for a in SENTENCES for b in SENTENCES]
    response = client.post("/similarity", json={"pairs": pairs}).json()
    scores = np.array([pair[metric] for pair in response["similarities"]])
    np.testing.assert_allclose((vectors @ vectors.T).ravel(), scores, atol=1e-6)


@pytest.mark.parametrize("metric", ["js", "l2"], scope="module")
def test_openai_vectors_of_models_that_recommend_no_dot_product(client: TestClient) -> None:
    request = {"input": [A, B]}
    default = client.post("/v1/embeddings", json=request).json()
    assert (
        default == client.post("/v1/embeddings", json=request | {"metric": "bhattacharyya"}).json()
    )


@both_metrics
def test_supported_metrics_start_with_it(client: TestClient, metric: Metric) -> None:
    info = client.get("/info").json()
    assert info["metrics"][0] == info["recommended_metric"] == metric


@pytest.mark.parametrize("metric", ["js"], scope="module")
def test_every_request_documents_the_same_default(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    options = {
        (schema, name): field
        for schema, content in schemas.items()
        if schema.endswith(("Request", "Parameters"))
        for name, field in content["properties"].items()
        if name in ("metric", "metrics")
    }
    assert len(options) == 11
    for (_, name), field in options.items():
        assert field["description"].startswith({"metric": METRIC, "metrics": METRICS}[name])
        assert "default" not in field
