"""The system that a ratio is taken with."""

import pytest

from benchmarks.parts.throughput import BY_SIZE, STATIC, best_peer
from benchmarks.systems import category, is_ours

RATES = {
    "library int8": 9.0,
    "CTranslate2 int8": 5.0,
    "OpenVINO int8": 4.0,
    "OpenVINO bf16": 7.0,
    "server int8, json": 8.0,
    "infinity ONNX int8": 2.0,
}
SERIES = {f"bulk/{name}/rate": [rate] for name, rate in RATES.items()}


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("library int8", "CTranslate2 int8"),
        ("OpenVINO int8", "CTranslate2 int8"),
        ("server int8, json", "infinity ONNX int8"),
        ("library fp32", None),
    ],
)
def test_best_peer_is_the_fastest_of_the_same_kind_and_precision(
    name: str, peer: str | None
) -> None:
    assert best_peer(SERIES, "bulk", name) == peer


def test_static_models_are_compared_whatever_their_precision() -> None:
    series = {f"{STATIC}/{name}/rate": [1.0] for name in ("library fast", "model2vec")}
    assert best_peer(series, STATIC, "library fast") == "model2vec"


def test_requests_of_any_size_are_compared_with_the_library() -> None:
    assert best_peer({}, BY_SIZE, "server int8, 512") == "library int8"


def test_categories_are_kind_and_precision() -> None:
    assert category("server int8, json") == category("infinity ONNX int8") == (True, "int8")
    assert category("sentence-transformers torch fp32") == (False, "fp32")
    assert is_ours("bare call int8")
    assert not is_ours("ONNX Runtime int8")
