import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import lattemix
from lattemix import loading, streaming
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.loading import load
from lattemix.model import Model
from lattemix.responses import EncodedText, PairSimilarity, RankResult, Rejection
from lattemix.settings import ModelSettings
from lattemix.similarity import MetricError, matrix, similarity
from model_store import LatteMixError, Store
from tests.conftest import SENTENCES

PAIRS = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3]), (SENTENCES[0], SENTENCES[5])]
LONG = "dog " * 30  # the tiny model reads 16 tokens


@pytest.fixture(scope="module")
def model(encoder: Encoder) -> Model:
    return Model(encoder)


def test_encodes_texts_in_order(model: Model, encoder: Encoder) -> None:
    np.testing.assert_array_equal(model.encode(iter(SENTENCES)), encoder.encode(SENTENCES).mixtures)


def test_encodes_a_single_text_without_a_batch_dimension(model: Model) -> None:
    np.testing.assert_array_equal(model.encode("a dog"), model.encode(["a dog"])[0])


def test_vectors_of_texts(model: Model, encoder: Encoder) -> None:
    full = model.vectors(SENTENCES)
    expected = matrix("centred", *[model.encode(SENTENCES)] * 2, encoder.centre)
    np.testing.assert_allclose(full @ full.T, expected, atol=1e-6)
    assert model.vectors(SENTENCES, dimensions=10).shape == (len(SENTENCES), 10)
    assert model.vectors("a dog", dtype="binary").shape == (3,)  # 20 bits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": 7}, "a multiple of 5 from 5 to 20, not 7"),
        ({"dtype": "binary", "metric": "cosine"}, "no negative numbers"),
    ],
)
def test_vectors_reject_unsupported_options(model: Model, options, message: str) -> None:
    with pytest.raises(LatteMixError, match=message):
        model.vectors(SENTENCES, **options)


def test_vectors_read_long_texts_unless_told_otherwise(model: Model) -> None:
    assert model.vectors(LONG).shape == (20,)
    with pytest.raises(TooLongError):
        model.vectors(LONG, truncate="error")


def test_similarity_of_two_sentences_is_a_float(model: Model) -> None:
    a, b = PAIRS[0]
    score = model.similarity(a, b)
    assert type(score) is float
    assert score == model.similarity([(a, b)])[0]


def test_similarity_by_several_metrics(model: Model, encoder: Encoder) -> None:
    scores = model.similarity(PAIRS, metrics=["cosine", "js", "centred"])
    assert list(scores) == ["cosine", "js", "centred"]
    a, b = (encoder.encode([pair[side] for pair in PAIRS]).mixtures for side in (0, 1))
    for metric, values in scores.items():
        expected = similarity(metric, a, b, encoder.centre)
        np.testing.assert_allclose(values, expected, atol=1e-6)


def test_ranks_texts_by_similarity_to_the_query(model: Model, encoder: Encoder) -> None:
    results = model.rank(SENTENCES[0], SENTENCES[1:], metric="cosine")
    mixtures = encoder.encode(SENTENCES).mixtures
    expected = matrix("cosine", mixtures[:1], mixtures[1:])[0]
    assert [result.index for result in results] == np.argsort(-expected, kind="stable").tolist()
    assert [result.text for result in results] == [SENTENCES[1 + r.index] for r in results]
    assert results[0].score == pytest.approx(expected.max(), abs=1e-6)


def test_rank_returns_the_top_k(model: Model) -> None:
    everything = model.rank(SENTENCES[0], SENTENCES)
    assert model.rank(SENTENCES[0], SENTENCES, top_k=3) == everything[:3]


def test_matrix_lists_pairs_above_the_threshold(model: Model) -> None:
    texts = ["a dog", "the sea was calm", "a dog", "prices dropped"]
    found = model.matrix(texts, metric="cosine", threshold=0.9999)
    assert (found.count, found.pairs) == (1, [[0, 2]])
    assert model.matrix(texts).count == 6
    assert len(model.matrix(texts, top_k=2).pairs) == 2


def test_explanation_sums_to_the_similarity(model: Model) -> None:
    a, b = PAIRS[0]
    explanation = model.explain(a, b)
    assert explanation.similarity == pytest.approx(model.similarity(a, b), abs=1e-6)
    for side in (explanation.a, explanation.b):
        total = sum(token.contribution for token in side.tokens)
        assert total == pytest.approx(explanation.similarity, abs=1e-5)


def test_truncation_warns_once_per_call(model: Model) -> None:
    with pytest.warns(lattemix.TruncationWarning, match=r"2 of 3 texts have more than 16") as seen:
        model.encode([LONG, "a dog", LONG + "man"], truncate="right")
    assert len(seen) == 1
    assert seen[0].filename == __file__


def test_truncation_can_be_rejected(model: Model) -> None:
    with pytest.raises(
        TooLongError, match=r"Text 2 has 32 tokens, more than the limit of 16: .*truncate to"
    ):
        model.similarity("a dog", LONG, truncate=False)
    with pytest.raises(TooLongError, match=r"Text 1 has"):
        model.explain(LONG, "a dog", truncate=False)


def test_short_texts_do_not_warn(model: Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.rank("a dog", SENTENCES)


def test_iterators_reject_single_items(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_CHUNK", 2)
    texts = ["a dog", "", "a man", " ", "the sea"]
    encoded = list(model.iter_encode(iter(texts)))
    assert [type(row) for row in encoded] == [
        EncodedText,
        Rejection,
        EncodedText,
        Rejection,
        EncodedText,
    ]
    np.testing.assert_allclose(encoded[4].mixture, model.encode("the sea"), atol=1e-6)
    assert encoded[3].index == 3
    assert "empty: the model finds no words" in encoded[3].reason
    pairs = list(model.iter_similarity([("a dog", "a man"), ("a dog", "")], ["cosine"]))
    assert isinstance(pairs[0], PairSimilarity)
    assert pairs[0].js is None
    assert isinstance(pairs[1], Rejection)
    ranked = list(model.iter_rank("a dog", texts))
    assert [row.index for row in ranked] == [0, 1, 2, 3, 4]
    assert isinstance(ranked[2], RankResult)


def test_empty_text_raises(model: Model) -> None:
    with pytest.raises(EmptyTextError, match="Text 2 is empty"):
        model.encode(["a dog", ""])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.similarity("a dog"), "two sentences, or a list of pairs"),
        (lambda m: m.similarity([("a", "b")], "c"), "two sentences, or a list of pairs"),
        (lambda m: m.similarity([("a", "b"), ("a",)]), r"pairs\[1\] is not a pair of strings"),
        (lambda m: m.similarity(["ab"]), r"pairs\[0\] is not a pair of strings"),
        (lambda m: m.encode(["a", 3]), r"texts\[1\] is int, not a string"),
        (lambda m: m.similarity([("a", "b")], metrics=[]), "metrics is empty"),
        (lambda m: next(m.iter_encode("abc")), "texts is a string: pass a list"),
        (lambda m: m.rank("a", ["b"], top_k=0), "top_k is 0: it should be at least 1"),
    ],
)
def test_wrong_arguments_are_named(model: Model, call, message: str) -> None:
    with pytest.raises(LatteMixError, match=message):
        call(model)


def test_unknown_metric_lists_the_choices(model: Model) -> None:
    with pytest.raises(MetricError, match=r"Unknown metric 'cos': choose among cosine, "):
        model.similarity("a dog", "a man", metric="cos")  # type: ignore[call-overload]


def test_load_opens_a_model_of_the_store(store: Store) -> None:
    model = load("tiny", store=store.root, provider="cpu")
    assert repr(model) == "Model('tiny:fp32', provider='cpu')"
    assert (model.info().latent_dims, model.info().classes) == (4, 5)


def test_load_names_a_missing_model(store: Store) -> None:
    with pytest.raises(LatteMixError, match=r"There is no model 'other' in .*it holds tiny"):
        load("other", store=store.root)


def test_load_assembles_a_shipped_model(
    head_directory: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lattemix.build import assemble as assemble_module

    real = assemble_module.assemble
    calls = []

    def assemble(head, store, name, **options):
        calls.append((head, name, options["precisions"]))
        return real(head, store, name, str(backbone), **options)

    monkeypatch.setattr(loading, "HEADS", head_directory.parent)
    monkeypatch.setattr(assemble_module, "assemble", assemble)
    first = load(head_directory.name, store=tmp_path, provider="cpu")
    second = load(head_directory.name, store=tmp_path, provider="cpu")
    assert calls == [(head_directory, head_directory.name, ["int8"])]
    assert first.similarity(*PAIRS[0]) == second.similarity(*PAIRS[0])


def test_shipped_model_is_assembled_in_fp16_for_a_gpu(
    head_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precisions: list[str] = []
    monkeypatch.setattr(loading, "HEADS", head_directory.parent)
    monkeypatch.setattr(
        "lattemix.build.assemble.assemble",
        lambda *_, **options: precisions.extend(options["precisions"]),
    )
    name = head_directory.name
    loading.assemble_if_shipped(ModelSettings(model=name, store=tmp_path, provider="cuda"))
    assert precisions == ["fp16"]


def test_load_names_the_extra_for_assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lattemix.build.assemble", None)
    with pytest.raises(LatteMixError, match=r"assembling it needs .*lattemix\[export\]"):
        load("default", store=tmp_path)


def test_public_names_exist() -> None:
    for name in lattemix.__all__:
        assert getattr(lattemix, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Encoder'"):
        _ = lattemix.Encoder


def test_importing_the_package_loads_no_dependency() -> None:
    code = "import sys, lattemix; print({'onnxruntime', 'httpx', 'numpy'} & set(sys.modules))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "set()"
