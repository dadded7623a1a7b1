import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones.words import save
from model_store import LatteMixError
from training import cli
from training.cache import VectorCache
from training.evaluate.word_report import measure_words


def test_layers_of_a_backbone(data: Path, backbone: Path, cache: VectorCache) -> None:
    report = measure_words(str(backbone), [1, 2, 3], data, cache)
    assert [*report.scores] == [1, 2]
    assert report.benchmarks == ["simlex999"]
    scores = [report.scores[layer]["simlex999"] for layer in (1, 2)]
    assert all((score.covered, score.total) == (3, 4) for score in scores)  # no cat in the sets
    notes = " ".join(report.left_out)
    assert "has 2 layers, so there is no layer 3." in notes
    assert "So men is left out." in notes
    assert "sts12: " in notes
    (table,) = report.tables()
    assert [row[0] for row in table.rows] == ["layer 1", "layer 2", "words found"]
    assert table.rows[2][1] == "75%"
    assert [record["layer"] for record in report.records()] == [1, 2]


def test_no_layer_of_those_named(data: Path, backbone: Path, cache: VectorCache) -> None:
    with pytest.raises(LatteMixError, match="has 2 layers, so layer 9"):
        measure_words(str(backbone), [9], data, cache)


def test_static_vectors_on_the_command_line(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["man", "dog", "sea", "blue", "market", "prices", "cat"]
    vectors = [[1, 0], [0, 1], [1, 0], [1, 1], [1, 0], [3, 1], [0, 2]]
    save(words, np.array(vectors, np.float32), tmp_path / "static")
    out = tmp_path / "report"
    options = ["--backbone", tmp_path / "static", "--data", data, "--out", out]
    options += ["--cache", tmp_path / "cache"]
    monkeypatch.setattr(sys, "argv", ["lattemix-train", "words", *map(str, options)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    assert "| layer 0 | 100.00 |" in capsys.readouterr().out  # the cosines rise as the scores do
    (record,) = json.loads((out / "report.json").read_text())["results"]
    assert (record["value"], record["covered"]) == (100, 4)
