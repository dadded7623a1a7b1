import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lattemix.encoder import Encoder
from lattemix.model import Model
from model_store import LatteMixError, Store
from tests.training.conftest import Run
from training.evaluate.limits import LimitsReport, ScoredTriples, Triple, read_triples

HEADER = "kind,sentence,changed,paraphrase\n"
ROWS = [
    "roles,a man is eating a dog,a dog is eating a man,someone is having lunch",
    "roles,the dog likes the child,the child likes the dog,a child plays with a red ball",
    "numbers,two women are talking,a women are talking,two women are talking",
]


@pytest.fixture
def triples(tmp_path: Path) -> Path:
    path = tmp_path / "triples.csv"
    path.write_text(HEADER + "\n".join(ROWS) + "\n", encoding="utf-8")
    return path


def test_our_triples_are_distinct_and_balanced() -> None:
    triples = read_triples()
    assert Counter(t.kind for t in triples) == {"roles": 20, "negation": 20, "numbers": 20}
    texts = [text for triple in triples for text in triple[1:]]
    assert len({text.casefold() for text in texts}) == len(texts) == 180


def test_six_role_swaps_have_a_paraphrase_of_the_same_words() -> None:
    def words(text: str) -> list[str]:
        return sorted(text.casefold().rstrip(".").split())

    same = [t for t in read_triples() if words(t.changed) == words(t.paraphrase)]
    assert [t.kind for t in same] == ["roles"] * 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the header must be kind,sentence,changed,paraphrase"),
        ("sentence,changed\na,b\n", "the header must be"),
        (HEADER, "has no triples"),
        (HEADER + ROWS[0] + "\nroles,a,b\n", "triple 2: expected 4 cells with text"),
        (HEADER + "roles,a, ,c\n", "triple 1: expected 4 cells with text"),
    ],
)
def test_rejects_malformed_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "triples.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(LatteMixError, match=message):
        read_triples(path)


def test_rejects_a_missing_file(run: Run, tmp_path: Path) -> None:
    assert "Cannot read" in str(run("limits", "--data", tmp_path / "absent.csv"))


def test_counts_strictly_higher_paraphrases_by_kind() -> None:
    triples = [Triple(kind, "a", "b", "c") for kind in ("roles", "roles", "numbers")]
    method = ("served", "cosine")
    scores = ScoredTriples(np.array([0.5, 1.0, 0.2]), np.array([0.6, 1 + 1e-9, 0.8]))
    report = LimitsReport(triples, {method: scores})
    assert report.higher(method, "roles") == (1, 2)  # equal up to rounding is not higher
    assert report.higher(method, "all") == (2, 3)
    assert report.means(method, "roles") == pytest.approx((0.75, 0.8))
    counts, means = report.tables()
    assert counts.rows == [["served, cosine", "1/2", "1/1", "2/3"]]
    assert means.rows == [["served, cosine", "0.750 / 0.800", "0.200 / 0.800", "0.567 / 0.800"]]


def test_limits_command_scores_the_model_as_served(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    store: Store,
    encoder: Encoder,
    backbone: Path,
    triples: Path,
    tmp_path: Path,
) -> None:
    options = ["--model", "tiny", "--store", store.root, "--backbone", backbone, "--data", triples]
    options += ["--cache", tmp_path / "cache", "--out", tmp_path / "report"]
    assert run("limits", *options) == 0
    assert "| served, centred | 0/2 | 1/1 | 1/3 |" in capsys.readouterr().out
    results = json.loads((tmp_path / "report" / "report.json").read_text())["results"]
    methods = {(record["aggregation"], record["metric"]) for record in results}
    metrics = ("cosine", "js", "l2", "bhattacharyya", "centred")
    assert methods == {("pooling", "mean"), *(("served", metric) for metric in metrics)}
    (record,) = (r for r in results if (r["metric"], r["kind"]) == ("js", "numbers"))
    changed = ROWS[2].split(",")[1:3]
    expected = Model(encoder).similarity(*changed, metric="js")
    assert record["changed_mean"] == pytest.approx(expected, abs=1e-4)
    assert record["paraphrase_mean"] == pytest.approx(1)


def test_limits_command_without_a_model_scores_a_head(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    head_directory: Path,
    backbone: Path,
    triples: Path,
    tmp_path: Path,
) -> None:
    options = ["--head", head_directory, "--backbone", backbone, "--data", triples]
    assert run("limits", *options, "--cache", tmp_path / "cache") == 0
    out = capsys.readouterr().out
    assert "| mixture, centred | 0/2 |" in out
    assert "served" not in out


def test_static_model_scores_swapped_roles_as_equal(static_encoder: Encoder) -> None:
    pairs = [(triple[1], triple[2]) for triple in (row.split(",") for row in ROWS[:2])]
    scores = Model(static_encoder).similarity(pairs, metric="cosine")
    np.testing.assert_allclose(scores, 1, atol=1e-6)
