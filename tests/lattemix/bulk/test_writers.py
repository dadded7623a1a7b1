import csv
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from lattemix.bulk import writers
from lattemix.bulk.readers import read_pairs
from lattemix.bulk.writers import (
    INTEGER,
    NUMBER,
    TEXT,
    Column,
    Origin,
    check_output,
    format_for,
    open_writer,
    sidecar,
)
from model_store import LatteMixError

PAIRS = [("a man", 'he said "no", twice'), ("ein Bär", "line one\nline two"), ("x", "")]
ORIGIN = Origin("tiny", "3f9a61c0b2d4")
COLUMNS = {"a": TEXT, "b": TEXT, "cosine": NUMBER, "error": TEXT}


def write(path: Path, columns: dict[str, Column], rows: list[dict[str, Any]]) -> Path:
    with open_writer(path, columns, ORIGIN) as put_row:
        for row in rows:
            put_row(row)
    return path


def _create(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_written_pairs_can_be_read_again(tmp_path: Path, name: str) -> None:
    rows = [{"a": a, "b": b, "cosine": 0.5} for a, b in PAIRS]
    assert list(read_pairs(write(tmp_path / name, COLUMNS, rows))) == PAIRS


@pytest.mark.parametrize("text", ["\r", "a\rb", "a\r\nb", "\n", 'a\r"b",\t'])
def test_csv_with_line_breaks_in_texts_can_be_read_again(tmp_path: Path, text: str) -> None:
    pairs = [(text, "b"), ("a", text)]
    path = write(tmp_path / "x.csv", COLUMNS, [{"a": a, "b": b} for a, b in pairs])
    assert list(read_pairs(path)) == pairs
    assert path.read_bytes().startswith(b"a,b,cosine,error,model,fingerprint\n")


def test_writes_csv_and_tsv(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"a": "x", "b": 'a "b",\tc\n', "cosine": 0.25},
        {"a": "y", "b": "", "error": "No."},
    ]
    with write(tmp_path / "x.csv", COLUMNS, rows).open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["a", "b", "cosine", "error", "model", "fingerprint"],
            ["x", 'a "b",\tc\n', "0.25", "", *ORIGIN],
            ["y", "", "", "No.", *ORIGIN],
        ]
    lines = write(tmp_path / "x.tsv", COLUMNS, rows).read_text().splitlines()
    assert [line.split("\t") for line in lines] == [
        ["a", "b", "cosine", "error", "model", "fingerprint"],
        ["x", 'a "b", c ', "0.25", "", *ORIGIN],
        ["y", "", "", "No.", *ORIGIN],
    ]


def test_json_omits_missing_values(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": "ä", "cosine": np.float32(0.1)}, {"a": "y", "error": "No."}]
    origin = ORIGIN._asdict()
    expected = [{"a": "ä", "cosine": 0.1, **origin}, {"a": "y", "error": "No.", **origin}]
    assert json.loads(write(tmp_path / "x.json", COLUMNS, rows).read_bytes()) == expected
    assert json.loads(write(tmp_path / "y.json", COLUMNS, []).read_bytes()) == []
    lines = write(tmp_path / "x.jsonl", COLUMNS, rows).read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected


def test_writes_parquet_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_GROUP_ROWS", 2)
    columns = {"index": INTEGER, "score": NUMBER, "w": Column("float32", (2,)), "error": TEXT}
    rows = [{"index": i, "score": 0.5, "w": np.array([i, 1], "f4")} for i in range(4)]
    rows.append({"index": 4, "error": "No."})
    file = parquet.ParquetFile(write(tmp_path / "x.parquet", columns, rows))
    assert file.num_row_groups == 3
    table = file.read()
    kinds = ["int64", "float", "list<element: float>", "string", "string", "string"]
    assert [str(kind) for kind in table.schema.types] == kinds
    assert table["w"].to_pylist() == [[0, 1], [1, 1], [2, 1], [3, 1], None]
    assert table["error"].to_pylist() == [None] * 4 + ["No."]


def test_writes_npy_with_nan_for_rejected_rows(tmp_path: Path) -> None:
    columns = {"a": TEXT, "cosine": NUMBER, "js": NUMBER, "error": TEXT}
    rows = [{"a": "x", "cosine": i / 4, "js": 1.0} for i in range(1000)]
    rows.append({"a": "y", "error": "No."})
    numbers = np.load(write(tmp_path / "x.npy", columns, rows))
    assert numbers.shape == (1001, 2)
    assert numbers.dtype == np.float32
    np.testing.assert_array_equal(numbers[:1000, 0], np.arange(1000) / 4)
    assert np.isnan(numbers[1000]).all()
    columns = {"text": TEXT, "embedding": Column("float32", (2, 3))}
    mixtures = np.arange(12, dtype="f4").reshape(2, 2, 3)
    path = write(tmp_path / "y.npy", columns, [{"embedding": x} for x in mixtures])
    np.testing.assert_array_equal(np.load(path), mixtures)
    assert np.load(write(tmp_path / "z.npy", columns, [])).shape == (0, 2, 3)


def test_npy_has_a_file_with_the_model_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.npy", {"cosine": NUMBER}, [])
    assert json.loads((tmp_path / "x.npy.json").read_text()) == ORIGIN._asdict()
    assert sidecar(path) == tmp_path / "x.npy.json"


def test_writes_an_array_as_csv_columns(tmp_path: Path) -> None:
    columns = {"text": TEXT, "embedding": Column("float32", (2,)), "error": TEXT}
    rows: list[dict[str, Any]] = [
        {"text": "x", "embedding": np.array([0.1, 1 / 3], "f4")},
        {"text": "y", "error": "No."},
    ]
    lines = write(tmp_path / "x.csv", columns, rows).read_text().splitlines()
    assert lines[0] == "text,embedding_0,embedding_1,error,model,fingerprint"
    assert lines[2] == "y,,,No.,tiny,3f9a61c0b2d4"
    written = np.array(lines[1].split(",")[1:3], "f4")
    np.testing.assert_array_equal(written, rows[0]["embedding"])


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.json", "x.jsonl", "x.parquet", "x.npy"])
def test_incomplete_file_does_not_replace_another(tmp_path: Path, name: str) -> None:
    out = _create(tmp_path / name, "from before")
    inode = out.stat().st_ino
    with open_writer(out, COLUMNS, ORIGIN) as put_row:
        put_row({"a": "x", "b": "y", "cosine": 1.0})
        assert out.read_text() == "from before"
        assert len(os.listdir(tmp_path)) == 2
    assert out.read_bytes() != b"from before"
    assert out.stat().st_ino != inode, "renamed, not copied"
    files = {name, f"{name}.json"} if name == "x.npy" else {name}
    assert set(os.listdir(tmp_path)) == files
    _create(out, "from before")
    with suppress(KeyboardInterrupt), open_writer(out, COLUMNS, ORIGIN) as put_row:
        put_row({"a": "x", "b": "y", "cosine": 1.0})
        raise KeyboardInterrupt
    assert out.read_text() == "from before"
    assert set(os.listdir(tmp_path)) == files


def test_written_file_has_the_default_permissions(tmp_path: Path) -> None:
    plain = _create(tmp_path / "plain", "")
    written = write(tmp_path / "x.csv", COLUMNS, [])
    assert written.stat().st_mode == plain.stat().st_mode


def test_checks_the_output_file_type() -> None:
    check_output(None)
    check_output(Path("x.CSV"))
    with pytest.raises(LatteMixError, match=r"^x.doc: these results are written to .csv, .tsv, "):
        check_output(Path("x.doc"))
    with pytest.raises(LatteMixError, match=r"to .csv, .tsv, .json, .jsonl, .parquet.$"):
        check_output(Path("x.npy"), exclude=".npy")


def test_checks_the_format_of_mixtures() -> None:
    assert format_for(None, None) == "dense"
    assert format_for(None, "sparse") == "sparse"
    assert format_for(Path("x.npy"), None) == "dense"
    assert format_for(Path("x.npy"), "flat") == "flat"
    assert format_for(Path("x.csv"), None) == "flat"
    with pytest.raises(LatteMixError, match=r"^--format sparse: .npy holds dense or flat.$"):
        format_for(Path("x.npy"), "sparse")
    with pytest.raises(LatteMixError, match=r"^--format dense: .parquet holds flat.$"):
        format_for(Path("x.parquet"), "dense")
