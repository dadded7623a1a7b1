import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from lattemix.bulk.commands import Rows
from lattemix.bulk.readers import read_texts
from lattemix.encoder import Encoder
from model_store import Artifact
from tests.lattemix.conftest import run
from tests.tiny import SENTENCES

pytestmark = pytest.mark.usefixtures("lattemix_environment")


@pytest.fixture(scope="session")
def origin(artifact: Artifact) -> dict[str, str]:
    """The columns that say which model computed a row."""
    return {"model": "tiny", "fingerprint": artifact.manifest.fingerprint}


ROWS = 'a,b\na dog,a dog\na dog,"the sea\nwas calm"\na dog, \na dog,the sea\n'


def test_similarity_scores_a_file_of_pairs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "scores.csv"
    file.write_text(ROWS)
    options = ["--file", str(file), "--out", str(out), "--metrics", "cosine,js"]
    code, printed, err = run(capsys, "similarity", *options)
    assert (code, printed) == (1, "")
    assert err == (
        "1 of 4 rows were rejected; the first is row 3: b is empty: the model finds no words in "
        "it.\n"
    )
    with out.open(newline="") as scores:
        rows = list(csv.DictReader(scores))
    assert [*rows[0]] == ["a", "b", "cosine", "js", "error", "model", "fingerprint"]
    assert [row["b"] for row in rows] == ["a dog", "the sea\nwas calm", " ", "the sea"]
    assert float(rows[0]["cosine"]) == pytest.approx(1)
    assert 0 < float(rows[1]["js"]) < 1
    assert (rows[2]["cosine"], rows[2]["js"]) == ("", "")
    assert rows[2]["error"] == "b is empty: the model finds no words in it."
    assert rows[3]["error"] == ""


def test_similarity_reads_standard_input_and_prints_json_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, origin: dict[str, str]
) -> None:
    lines = "a dog\ta dog\n" * 5000  # more than one chunk
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    code, out, err = run(capsys, "similarity", "--file", "-", "--metrics", "l2")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 5000
    expected = {"a": "a dog", "b": "a dog", "l2": pytest.approx(0, abs=1e-6)}
    assert rows[0] == {**expected, **origin}


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_scores_have_no_more_digits_than_float32(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    out = tmp_path / f"scores.{kind}"
    code, _, _ = run(capsys, "similarity", *SENTENCES[:2], "--metrics", "js", "--out", str(out))
    assert code == 0
    (score,) = re.findall(r"0\.\d+", out.read_text())
    assert score == str(np.float32(score))


def test_counts_truncated_sentences(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    long = "dog " * 40
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps([long, "a dog"]) + "\n" + json.dumps([long, long]) + "\n")
    code, _, err = run(capsys, "similarity", "--file", str(file), "--truncate", "right")
    assert code == 0
    assert err == "Note: 3 sentences had more than 16 tokens and were truncated.\n"
    code, _, err = run(capsys, "embed", long, "a dog", "--truncate", "left")
    assert "1 sentences had more" in err
    code, _, err = run(capsys, "rank", long, long, "a dog", "--truncate", "right")
    assert "2 sentences had more" in err
    code, _, err = run(capsys, "rank", long, long, "a dog")
    assert (code, err) == (0, "")


def test_finds_an_invalid_line_before_it_loads_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "scores.csv"
    file.write_text("a,b\n1,2\n3\n")
    options = ["--file", str(file), "--out", str(out), "--model", "missing"]
    code, _, err = run(capsys, "similarity", *options)
    assert (code, err) == (1, f"lattemix: {file}, line 3: expected 2 columns, found 1.")
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "tsv", "parquet", "npy"])
def test_embed_writes_every_file_type(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, encoder: Encoder
) -> None:
    file, out = tmp_path / "sentences.txt", tmp_path / f"mixtures.{kind}"
    file.write_text("\n".join([*SENTENCES, "", "a dog\n"]))
    code, _, err = run(capsys, "embed", "--file", str(file), "--out", str(out))
    assert code == 1
    assert err.startswith("1 of 12 rows were rejected; the first is row 11: text is empty")
    written = _mixtures(out)
    assert written.shape[0] == 12
    assert written[0].shape == ((20,) if kind in ("csv", "tsv", "parquet") else (4, 5))
    assert np.isnan(written[10]).all()
    expected = encoder.encode([*SENTENCES, "a dog"]).mixtures
    mixtures = np.delete(written, 10, axis=0).reshape(11, 4, 5)
    np.testing.assert_allclose(mixtures, expected, atol=1e-6)


def _mixtures(out: Path) -> NDArray[np.float32]:
    """Read the mixtures that `embed` wrote; NaN where there is none."""
    if out.suffix == ".npy":
        mixtures: NDArray[np.float32] = np.load(out)
        return mixtures
    if out.suffix in (".csv", ".tsv"):
        delimiter = "," if out.suffix == ".csv" else "\t"
        lines = list(csv.reader(out.open(), delimiter=delimiter))[1:]
        return np.array([[cell or "nan" for cell in line[1:-3]] for line in lines], "f4")
    if out.suffix == ".parquet":
        rows = parquet.read_table(out).to_pylist()
    elif out.suffix == ".json":
        rows = json.loads(out.read_bytes())
    else:
        rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    none = np.full_like(rows[0]["embedding"], np.nan)
    return np.array([row.get("embedding") or none for row in rows], "f4")


def test_embed_prints_sparse_and_flat_mixtures(
    capsys: pytest.CaptureFixture[str], encoder: Encoder
) -> None:
    code, out, err = run(capsys, "embed", "a dog", "--format", "sparse")
    assert (code, err) == (0, "")
    row = json.loads(out)
    weights = encoder.encode(["a dog"]).mixtures.ravel()
    assert row["text"] == "a dog"
    assert row["embedding"]["indices"] == np.flatnonzero(weights >= 0.01).tolist()
    large = weights[row["embedding"]["indices"]]
    np.testing.assert_allclose(row["embedding"]["values"], large, atol=1e-6)
    code, out, _ = run(capsys, "embed", "a dog", "--format", "flat")
    np.testing.assert_allclose(json.loads(out)["embedding"], weights, atol=1e-6)


def test_rank_prints_the_most_similar_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "rank", "the sea", "a dog", "the sea", "a man", "--top-k", "2")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first == "1.0000  the sea"
    assert float(second.split()[0]) < 1
    code, out, err = run(capsys, "rank", "the sea", " ", "the sea")
    assert code == 1
    assert out == "1.0000  the sea\n"
    assert "1 of 2 rows were rejected; the first is row 1: text is empty" in err


def test_rank_orders_a_file_of_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, origin: dict[str, str]
) -> None:
    file, out = tmp_path / "candidates.csv", tmp_path / "ranks.json"
    file.write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(SENTENCES)))
    with file.open("a") as lines:
        lines.write("10, \n")
    options = ["--metric", "cosine", "--file", str(file)]
    code, _, err = run(capsys, "rank", SENTENCES[3], *options, "--out", str(out))
    assert code == 1
    assert "1 of 11 rows were rejected; the first is row 11: text is empty" in err
    rows = json.loads(out.read_bytes())
    assert rows[0] == {"index": 3, "score": pytest.approx(1), "text": SENTENCES[3], **origin}
    scores = [row["score"] for row in rows[:10]]
    assert scores == sorted(scores, reverse=True)
    assert sorted(row["index"] for row in rows) == list(range(11))
    assert rows[10]["error"].startswith("text is empty")
    code, printed, _ = run(capsys, "rank", SENTENCES[3], *options, "--top-k", "1")
    assert [json.loads(line)["index"] for line in printed.splitlines()] == [3, 10]


def test_progress_bar_needs_a_terminal_without_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "x.txt"
    file.write_text("1\n2\n")

    def shown(stderr: bool, stdout: bool, out: Path | None) -> bool:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: stderr)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: stdout)
        rows = Rows.read(read_texts, file, out)
        assert rows.total == 2
        return rows.progress_bar

    assert shown(True, True, Path("x.csv"))
    assert shown(True, False, None)
    assert not shown(True, True, None)
    assert not shown(False, True, Path("x.csv"))


@pytest.mark.parametrize("installed", [True, False])
def test_progress_bar_counts_rows_and_needs_tqdm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    rows = Rows(["a", "b", "c"], total=3, progress_bar=True)
    assert list(rows.process(iter)) == [("a", "a"), ("b", "b"), ("c", "c")]
    assert ("3.00/3.00" in capsys.readouterr().err) is installed
