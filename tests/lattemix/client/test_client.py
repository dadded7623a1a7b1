"""The methods of both clients, against the real service."""

import asyncio
import inspect
import json
import warnings
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import lattemix
from lattemix import AsyncClient, Client, Model, Rejection, ServerError, TruncationWarning
from lattemix.encoder import Encoder
from model_store import LatteMixError
from tests.lattemix.client.conftest import PAIRS, Kind, Recorder, both, call
from tests.tiny import SENTENCES

LONG = "dog " * 40  # the tiny model reads 16 tokens


@pytest.fixture(scope="module")
def model(encoder: Encoder) -> Model:
    return Model(encoder)


METHODS = [name for name, _ in inspect.getmembers(Model, inspect.isfunction) if name[0] != "_"]


@pytest.mark.parametrize("name", METHODS)
def test_clients_have_the_signatures_of_model(name: str) -> None:
    def parameters(kind: type) -> list[tuple[str, Any, Any]]:
        signature = inspect.signature(getattr(kind, name))
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(Client) == parameters(AsyncClient) == parameters(Model)


@both
def test_encode_returns_the_mixtures_of_the_model(
    kind: Kind, server: Recorder, model: Model
) -> None:
    mixtures = call(kind, server, "encode", iter(SENTENCES))
    assert mixtures.dtype == np.float32
    np.testing.assert_allclose(mixtures, model.encode(SENTENCES), atol=1e-5)
    np.testing.assert_array_equal(call(kind, server, "encode", SENTENCES[0]), mixtures[0])


@both
def test_vectors_are_those_of_the_model(kind: Kind, server: Recorder, model: Model) -> None:
    rows = call(kind, server, "vectors", iter(SENTENCES))
    np.testing.assert_allclose(rows, model.vectors(SENTENCES), atol=1e-5)
    np.testing.assert_array_equal(call(kind, server, "vectors", SENTENCES[0]), rows[0])
    assert call(kind, server, "vectors", SENTENCES, dtype="int8").dtype == np.int8


@both
def test_similarity_of_two_sentences_is_a_float(kind: Kind, server: Recorder, model: Model) -> None:
    score = call(kind, server, "similarity", *PAIRS[1])
    assert type(score) is float
    assert score == pytest.approx(model.similarity(*PAIRS[1]), abs=1e-5)


@both
def test_similarity_of_pairs_is_an_array(kind: Kind, server: Recorder, model: Model) -> None:
    scores = call(kind, server, "similarity", iter(PAIRS))
    assert (scores.dtype, scores.shape) == (np.float32, (30,))
    np.testing.assert_allclose(scores, model.similarity(PAIRS), atol=1e-5)
    scores = call(kind, server, "similarity", PAIRS, metric="js")
    np.testing.assert_allclose(scores, model.similarity(PAIRS, metric="js"), atol=1e-5)


@both
def test_similarity_by_several_metrics_is_a_dict(
    kind: Kind, server: Recorder, model: Model
) -> None:
    scores = call(kind, server, "similarity", PAIRS, metrics=["cosine", "js"])
    expected = model.similarity(PAIRS, metrics=["cosine", "js"])
    assert list(scores) == ["cosine", "js"]
    for metric, values in expected.items():
        np.testing.assert_allclose(scores[metric], values, atol=1e-5)
    sizes = [len(json.loads(body)["pairs"]) for body in server.bodies("/similarity")]
    assert sizes == [4] * 7 + [2]  # at most 8 sentences
    assert len(server.bodies("/info")) == 1


@both
def test_empty_lists_give_empty_results(kind: Kind, server: Recorder) -> None:
    assert call(kind, server, "encode", []).shape == (0, 4, 5)
    assert call(kind, server, "similarity", []).shape == (0,)
    assert call(kind, server, "rank", "a dog", []) == []


@both
def test_rank_orders_texts_across_requests(kind: Kind, server: Recorder, model: Model) -> None:
    results = call(kind, server, "rank", "a dog", iter(SENTENCES), metric="cosine")
    expected = model.rank("a dog", SENTENCES, metric="cosine")
    assert [(r.index, r.text) for r in results] == [(r.index, r.text) for r in expected]
    np.testing.assert_allclose([r.score for r in results], [r.score for r in expected], atol=1e-5)
    assert len(server.bodies("/rank")) == 2  # seven texts beside the query, then three
    best = call(kind, server, "rank", "a dog", SENTENCES, top_k=2)
    assert [r.index for r in best] == [r.index for r in model.rank("a dog", SENTENCES, top_k=2)]


@both
def test_iter_rank_keeps_the_order_of_the_texts(kind: Kind, server: Recorder, model: Model) -> None:
    rows = call(kind, server, "iter_rank", "a dog", [*SENTENCES, " "], "cosine")
    expected = list(model.iter_rank("a dog", [*SENTENCES, " "], "cosine"))
    assert [row.index for row in rows] == list(range(11))
    assert rows[10] == expected[10] == Rejection(10, rows[10].reason)
    scores = [[row.score for row in part[:10]] for part in (rows, expected)]
    np.testing.assert_allclose(*scores, atol=1e-5)


@both
def test_matrix_lists_pairs_above_the_threshold(kind: Kind, server: Recorder) -> None:
    texts = ["a dog", "the sea", "a dog"]
    response = call(kind, server, "matrix", texts, metric="cosine", threshold=0.999, top_k=5)
    assert [list(pair) for pair in response.pairs] == [[0, 2]]
    with pytest.raises(ServerError, match="LATTEMIX_MAX_INPUTS"):
        call(kind, server, "matrix", SENTENCES)


@both
def test_explain_breaks_a_similarity_down(kind: Kind, server: Recorder, model: Model) -> None:
    a, b = SENTENCES[2:4]
    explained = call(kind, server, "explain", a, b, metric="js")
    assert explained.metric == "js"
    assert explained.similarity == pytest.approx(model.similarity(a, b, metric="js"), abs=1e-5)
    assert [word.text for word in explained.b.words] == b.split()
    with pytest.raises(ServerError, match=r"pair\[1\] has 22 tokens"):
        call(kind, server, "explain", a, "dog " * 20, truncate=False)


@both
def test_iterators_reject_the_same_rows_as_the_model(
    kind: Kind, server: Recorder, model: Model
) -> None:
    pairs = [*PAIRS[:5], ("a dog", " "), ("\ud800", "a"), *PAIRS[5:9], ("", "")]
    rows = call(kind, server, "iter_similarity", pairs, ["js"])
    expected = list(model.iter_similarity(pairs, ["js"]))
    rejections = [row for row in rows if isinstance(row, Rejection)]
    assert rejections == [row for row in expected if isinstance(row, Rejection)]
    assert [row.index for row in rejections] == [5, 6, 11]
    assert rejections[0].reason == "b is empty: the model finds no words in it."
    texts = call(kind, server, "iter_encode", ["a dog", " "])
    assert texts[1] == list(model.iter_encode(["a dog", " "]))[1]
    assert texts[1].reason == "text is empty: the model finds no words in it."


@both
def test_iter_similarity_defaults_to_the_recommended_metric(kind: Kind, server: Recorder) -> None:
    (row,) = call(kind, server, "iter_similarity", PAIRS[:1])
    assert row.centred is not None
    assert row.cosine is None


@both
def test_iterators_report_truncation_per_row(kind: Kind, server: Recorder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        short, long = call(kind, server, "iter_encode", ["a dog", LONG], truncate="right")
    assert (short.tokens, short.truncated) == (4, False)
    assert (long.tokens, long.truncated) == (42, True)


@both
@pytest.mark.parametrize(
    ("method", "arguments", "count"),
    [
        ("encode", ([LONG, "a dog", LONG],), "2 of 3"),
        ("similarity", ("a dog", LONG), "1 of 2"),
        ("rank", (LONG, ["a dog", "a man"]), "1 of 3"),
        ("iter_rank", (LONG, SENTENCES), "1 of 1"),
    ],
)
def test_truncation_that_the_result_does_not_report_warns_once(
    kind: Kind, server: Recorder, method: str, arguments: tuple[Any, ...], count: str
) -> None:
    with pytest.warns(TruncationWarning, match=f"^{count} texts have more than 16") as warned:
        call(kind, server, method, *arguments, truncate="left")
    assert len(warned) == 1
    assert warned[0].filename == inspect.getfile(call)  # the caller, not the library


@both
def test_truncation_can_be_rejected(kind: Kind, server: Recorder) -> None:
    with pytest.raises(ServerError, match=r"^inputs\[8\] has 42 tokens"):
        call(kind, server, "encode", [*SENTENCES[:8], LONG], truncate=False)


@both
@pytest.mark.parametrize(
    ("method", "arguments", "options", "message"),
    [
        ("similarity", ("a dog",), {}, "two sentences, or a list of pairs"),
        ("similarity", ([("a", "b"), ("a",)],), {}, r"pairs\[1\] is not a pair of strings"),
        ("encode", (["a", 3],), {}, r"texts\[1\] is int, not a string"),
        ("iter_encode", (["a", 3],), {}, r"texts\[1\] is int, not a string"),
        ("rank", ("a", ["b"]), {"top_k": 0}, "top_k is 0: it should be at least 1"),
        ("matrix", (["a", "b"],), {"top_k": -1}, "top_k is -1: it should be at least 1"),
        (
            "similarity",
            (PAIRS,),
            {"metric": "js", "metrics": ["js"]},
            "takes metric or metrics, not both",
        ),
    ],
)
def test_names_wrong_arguments(
    kind: Kind, server: Recorder, method: str, arguments: Any, options: Any, message: str
) -> None:
    with pytest.raises(LatteMixError, match=message):
        call(kind, server, method, *arguments, **options)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_docstring_examples_run(
    kind: type, server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = dedent((kind.__doc__ or "").split("```python\n")[1].split("```")[0])

    def connect(url: str) -> Client | AsyncClient:
        client: Client | AsyncClient = kind(url, transport=server)
        return client

    monkeypatch.setattr(lattemix, kind.__name__, connect, raising=False)
    if kind is Client:
        exec(example, {"lattemix": lattemix})
    else:
        scope: dict[str, Any] = {"lattemix": lattemix}
        exec("async def main():\n" + "".join(f"    {x}\n" for x in example.splitlines()), scope)
        asyncio.run(scope["main"]())
    assert len(server.bodies("/similarity")) >= 1
    assert len(server.bodies("/embed")) == 1
