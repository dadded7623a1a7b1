import re
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones import TokenVectors
from lattemix.similarity import similarity
from training.evaluate.limits import read_triples
from training.evaluate.scores import pooling_scores
from training.paper import theorem
from training.paper.theorem import ATTRIBUTES, METRICS, WORD_CLASSES, draw, vectors

METHOD = Path(__file__).parents[3] / "docs" / "method.md"
A, B = vectors()
PAIR = np.array([0]), np.array([1])  # indices of the two bags


def difference(temperature: float, a: np.ndarray = A, b: np.ndarray = B) -> float:
    """Largest difference between the mixtures of two bags."""
    mixtures = [WORD_CLASSES.mixture(bag, temperature) for bag in (a, b)]
    return float(abs(mixtures[0] - mixtures[1]).max())


def test_bags_differ_and_have_equal_means() -> None:
    assert not {tuple(row) for row in A} & {tuple(row) for row in B}
    np.testing.assert_allclose(A.mean(axis=0), B.mean(axis=0), rtol=0, atol=1e-12)
    assert theorem.mean_pooling_cosine() == pytest.approx(1, abs=1e-12)


def test_mean_pooling_scores_the_bags_as_equal() -> None:
    stacked = np.concatenate([A, B]).astype(np.float32)
    tokens = TokenVectors(stacked, np.arange(4, dtype=np.int32), np.array([2, 2], np.int32))
    scores = pooling_scores(tokens, *PAIR, static=True)
    assert scores["mean"] == pytest.approx(1, abs=1e-7)


def test_mixtures_differ_by_every_metric() -> None:
    assert difference(1) > 0.25
    for metric in METRICS:
        mixtures = [WORD_CLASSES.mixture(bag)[None].astype(np.float32) for bag in (A, B)]
        to_itself = similarity(metric, mixtures[0], mixtures[0])[0]
        to_other = similarity(metric, mixtures[0], mixtures[1])[0]
        assert to_other == WORD_CLASSES.score(metric) < to_itself - 0.15, metric


def test_mixtures_are_equal_if_each_dim_sees_one_attribute() -> None:
    assert not np.allclose(ATTRIBUTES.distributions(A), ATTRIBUTES.distributions(B))
    np.testing.assert_allclose(ATTRIBUTES.mixture(A), ATTRIBUTES.mixture(B), rtol=0, atol=1e-12)
    assert ATTRIBUTES.score("js") == pytest.approx(1, abs=1e-6)


def test_equal_means_leave_only_second_order_at_high_temperature() -> None:
    assert difference(50) / difference(100) == pytest.approx(4, rel=0.01)
    moved = difference(50, A, B + 1), difference(100, A, B + 1)  # unequal means: first order
    assert moved[0] / moved[1] == pytest.approx(2, rel=0.05)
    assert WORD_CLASSES.score("js", 100) == pytest.approx(1, abs=1e-5)


def test_mixture_of_low_temperature_is_the_histogram_of_classes() -> None:
    np.testing.assert_allclose(WORD_CLASSES.mixture(A, 0.05), [[0.5, 0.5, 0, 0]], atol=1e-12)
    assert WORD_CLASSES.score("js", 0.05) == pytest.approx(0, abs=1e-6)


def test_figure_shows_the_bags(tmp_path: Path) -> None:
    draw(tmp_path / "theorem.svg")
    figure = (tmp_path / "theorem.svg").read_text(encoding="utf-8")
    for text in ("Paris", "Rome", "both means", "Paris + Italy", "temperature"):
        assert f">{text}<" in figure
    draw(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == figure


def test_method_page_shows_the_table_and_the_figure() -> None:
    page = METHOD.read_text(encoding="utf-8")
    for line in theorem.table().markdown.splitlines()[2:]:
        assert line in page
    for target in re.findall(r"\]\((?!http)([^)#]+)", page):
        assert (METHOD.parent / target).exists(), target


def test_capital_triples_exchange_the_countries() -> None:
    triples = read_triples(Path(theorem.__file__).with_name("capitals.csv"))
    assert len(triples) == 66
    assert triples[0].sentence == "She flew from Paris to Italy."
    assert triples[0].changed == "She flew from Rome to France."
    for triple in triples:
        places = [set(re.findall(r"\b(?!She|He|A\b)[A-Z]\w+", text)) for text in triple[1:]]
        assert places[0] == places[2]
        assert not places[0] & places[1]
