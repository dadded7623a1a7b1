import csv
import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from lattemix.bulk import writers as results
from lattemix.bulk.readers import read_pairs, read_texts
from lattemix.bulk.writers import INTEGER, NUMBER, TEXT, Column, check, format_for, writing
from model_store import LatteMixError

PAIRS = [("a man", 'he said "no", twice'), ("ein Bär", "line one\nline two"), ("x", "")]


def jsonl(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def put(path: Path, content: str | bytes | dict[str, list[Any]] | pyarrow.Table) -> Path:
    if isinstance(content, pyarrow.Table):
        parquet.write_table(content, path)
    elif isinstance(content, dict):
        parquet.write_table(pyarrow.table(content), path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "a,b\n1,2\n3,4\n"),
        ("x.csv", "\ufeffSentence2,id, sentence1\n2,7,1\n\n4,8,3\n"),
        ("x.csv", "1,2\r\n3,4"),
        ("x.tsv", "a\tb\n1\t2\n3\t4\n"),
        ("x.TSV", "1\t2\n3\t4\n"),
        ("x.jsonl", '["1", "2"]\n\n{"b": "4", "a": "3", "id": 5}\n'),
        ("x.jsonl", jsonl({"sentence1": "1", "sentence2": "2"}, ["3", "4"])),
        ("x.parquet", {"b": ["2", "4"], "n": [1, 2], "a": ["1", "3"]}),
        ("x.parquet", {"left": ["1", "3"], "right": ["2", "4"]}),
    ],
)
def test_pairs_are_read(tmp_path: Path, name: str, content: Any) -> None:
    assert list(read_pairs(put(tmp_path / name, content))) == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", "1, 2\n\n3\u2028\t4"),
        ("x.csv", 'text\n"1, 2"\n""\n3\u2028\t4\n'),
        ("x.csv", 'n,sentence\n0,"1, 2"\n0,\n0,3\u2028\t4\n'),
        ("x.csv", '"1, 2"\n""\n3\u2028\t4\n'),
        ("x.tsv", "sentence\tn\n1, 2\t0\n\t0\n3\u2028 4\t0\n"),
        ("x.jsonl", jsonl("1, 2", {"text": ""}, {"sentence": "3\u2028\t4"})),
        ("x.parquet", {"text": ["1, 2", "", "3\u2028\t4"], "n": [1, 2, 3]}),
    ],
)
def test_sentences_are_read(tmp_path: Path, name: str, content: Any) -> None:
    found = [text.replace("\t", " ") for text in read_texts(put(tmp_path / name, content))]
    assert found == ["1, 2", "", "3\u2028 4"]


def test_quotes_in_tsv_are_text(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tsv", 'a\tb\n"Yes, he said.\tNo"\nx\ty\n')
    assert list(read_pairs(path)) == [('"Yes, he said.', 'No"'), ("x", "y")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def feed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    feed("a\tb\n1\t2\r\n")
    assert list(read_pairs(Path("-"))) == [("a", "b"), ("1", "2")]  # there is no header
    feed("text\n1\t2\n")
    assert list(read_texts(Path("-"))) == ["text", "1\t2"]
    feed("a\tb\nc\n")
    with pytest.raises(LatteMixError, match=r"^Standard input, line 2: expected 2 columns, found"):
        list(read_pairs(Path("-")))


@pytest.mark.parametrize(
    ("read", "name", "content", "says"),
    [
        (read_pairs, "x.csv", "a,b\n1,2\n3\n", ", line 3: expected 2 columns, found 1."),
        (read_pairs, "x.csv", 'a,b\n"1\n1",2\n3,4,5\n', ", line 4: expected 2 columns, found 3."),
        (read_pairs, "x.csv", 'a,b\n"1,2\n', ", line 2: unexpected end of data."),
        (
            read_pairs,
            "x.csv",
            "id,left,right\n",
            ": expected columns named a, b or sentence1, sentence2, or 2 columns in all; "
            "found id, left, right.",
        ),
        (read_pairs, "x.csv", b"a,b\n1,2\n\xff,2\n", ", line 3: this is not UTF-8 text."),
        (read_pairs, "x.tsv", "a\tb\n1\n", ", line 2: expected 2 columns, found 1."),
        (
            read_pairs,
            "x.txt",
            "1\n",
            ": pairs are read from .csv, .tsv, .jsonl, .parquet, or - for standard input.",
        ),
        (read_pairs, "x.jsonl", '["1", "2"]\n["1"]\n', ", line 2: expected a list of 2 strings"),
        (read_pairs, "x.jsonl", '["1", 2]\n', ", line 1: expected a list of 2 strings"),
        (read_pairs, "x.jsonl", '{"a": "1"}\n', "or an object with a, b or sentence1, sentence2."),
        (read_pairs, "x.jsonl", '\n["1",\n', ", line 2: this is not JSON: Expecting value"),
        (read_pairs, "x.jsonl", "[" * 100_000, ", line 1: this is not JSON"),
        (read_texts, "x.jsonl", "7\n", ", line 1: expected a string, or an object with text or s"),
        (read_texts, "x.jsonl", '"\\ud800"\n', ", line 1: this holds a lone surrogate."),
        (read_texts, "x.jsonl", '{"text": null}\n', ", line 1: expected a string"),
        (read_texts, "x.txt", b"fine\nna\xefve\n", ", line 2: this is not UTF-8 text."),
        (
            read_texts,
            "x.csv",
            "1,2\n",
            ": expected columns named text or sentence, or one column in all; found 1, 2.",
        ),
        (read_texts, "x.doc", "", ": sentences are read from .csv, .tsv, .jsonl, .parquet, .txt"),
        (read_texts, "x.parquet", "text\n", " cannot be read as Parquet: "),
        (read_texts, "x.parquet", {"text": ["1", None]}, ", row 2: column text is null."),
        (read_pairs, "x.parquet", {"a": ["1"], "b": [2]}, ", row 1: column b is not text."),
        (read_pairs, "x.parquet", {"a": ["1"]}, " or 2 columns in all; found a."),
        (
            read_pairs,
            "x.parquet",
            pyarrow.Table.from_arrays([pyarrow.array(["1"])] * 2, names=["x", "x"]),
            " cannot be read as Parquet: 'Field \"x\" exists 2 times in schema'.",
        ),
        (
            read_texts,
            "x.parquet",
            {"text": pyarrow.array([2**62], pyarrow.timestamp("ms"))},
            " cannot be read as Parquet: ",
        ),
    ],
)
def test_a_wrong_file_is_named_with_the_line(
    tmp_path: Path, read: Callable[[Path], Any], name: str, content: Any, says: str
) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(LatteMixError) as raised:
        list(read(path))
    assert str(raised.value).startswith(str(path))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv", "1,2\n3\n"), ("x.tsv", "1\t2\n3\n"), ("x.jsonl", '["1", "2"]\nnone\n')],
)
def test_files_are_read_as_a_stream(tmp_path: Path, name: str, content: str) -> None:
    rows = read_pairs(put(tmp_path / name, content))
    assert next(rows) == ("1", "2")
    with pytest.raises(LatteMixError, match="line 2"):
        next(rows)


COLUMNS = {"a": TEXT, "b": TEXT, "cosine": NUMBER, "error": TEXT}


def write(path: Path, columns: dict[str, Column], rows: list[dict[str, Any]]) -> Path:
    with writing(path, columns) as put_row:
        for row in rows:
            put_row(row)
    return path


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_what_is_written_can_be_read_again(tmp_path: Path, name: str) -> None:
    rows = [{"a": a, "b": b, "cosine": 0.5} for a, b in PAIRS]
    assert list(read_pairs(write(tmp_path / name, COLUMNS, rows))) == PAIRS


@pytest.mark.parametrize("text", ["\r", "a\rb", "a\r\nb", "\n", 'a\r"b",\t'])
def test_csv_with_line_breaks_in_texts_can_be_read_again(tmp_path: Path, text: str) -> None:
    pairs = [(text, "b"), ("a", text)]
    path = write(tmp_path / "x.csv", COLUMNS, [{"a": a, "b": b} for a, b in pairs])
    assert list(read_pairs(path)) == pairs
    assert path.read_bytes().startswith(b"a,b,cosine,error\n")


def test_csv_and_tsv(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"a": "x", "b": 'a "b",\tc\n', "cosine": 0.25},
        {"a": "y", "b": "", "error": "No."},
    ]
    with write(tmp_path / "x.csv", COLUMNS, rows).open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["a", "b", "cosine", "error"],
            ["x", 'a "b",\tc\n', "0.25", ""],
            ["y", "", "", "No."],
        ]
    text = write(tmp_path / "x.tsv", COLUMNS, rows).read_text()
    assert text == 'a\tb\tcosine\terror\nx\ta "b", c \t0.25\t\ny\t\t\tNo.\n'


def test_json_and_json_lines_leave_out_what_is_missing(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": "ä", "cosine": np.float32(0.1)}, {"a": "y", "error": "No."}]
    expected = [{"a": "ä", "cosine": 0.1}, {"a": "y", "error": "No."}]
    assert json.loads(write(tmp_path / "x.json", COLUMNS, rows).read_bytes()) == expected
    assert json.loads(write(tmp_path / "y.json", COLUMNS, []).read_bytes()) == []
    lines = write(tmp_path / "x.jsonl", COLUMNS, rows).read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MOST_ROWS", 2)
    columns = {"index": INTEGER, "score": NUMBER, "w": Column("float32", (2,)), "error": TEXT}
    rows = [{"index": i, "score": 0.5, "w": np.array([i, 1], "f4")} for i in range(4)]
    rows.append({"index": 4, "error": "No."})
    file = parquet.ParquetFile(write(tmp_path / "x.parquet", columns, rows))
    assert file.num_row_groups == 3
    table = file.read()
    kinds = ["int64", "float", "list<element: float>", "string"]
    assert [str(kind) for kind in table.schema.types] == kinds
    assert table["w"].to_pylist() == [[0, 1], [1, 1], [2, 1], [3, 1], None]
    assert table["error"].to_pylist() == [None] * 4 + ["No."]


def test_npy_holds_the_numbers(tmp_path: Path) -> None:
    columns = {"a": TEXT, "cosine": NUMBER, "js": NUMBER, "error": TEXT}
    rows = [{"a": "x", "cosine": i / 4, "js": 1.0} for i in range(1000)]
    rows.append({"a": "y", "error": "No."})
    found = np.load(write(tmp_path / "x.npy", columns, rows))
    assert found.shape == (1001, 2)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:1000, 0], np.arange(1000) / 4)
    assert np.isnan(found[1000]).all()
    columns = {"text": TEXT, "embedding": Column("float32", (2, 3))}
    mixtures = np.arange(12, dtype="f4").reshape(2, 2, 3)
    path = write(tmp_path / "y.npy", columns, [{"embedding": x} for x in mixtures])
    np.testing.assert_array_equal(np.load(path), mixtures)
    assert np.load(write(tmp_path / "z.npy", columns, [])).shape == (0, 2, 3)


def test_an_array_in_csv_has_a_column_for_each_number(tmp_path: Path) -> None:
    columns = {"text": TEXT, "embedding": Column("float32", (2,)), "error": TEXT}
    rows: list[dict[str, Any]] = [
        {"text": "x", "embedding": np.array([0.1, 1 / 3], "f4")},
        {"text": "y", "error": "No."},
    ]
    lines = write(tmp_path / "x.csv", columns, rows).read_text().splitlines()
    assert lines[0] == "text,embedding_0,embedding_1,error"
    assert lines[2] == "y,,,No."
    written = np.array(lines[1].split(",")[1:3], "f4")
    np.testing.assert_array_equal(written, rows[0]["embedding"])


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.json", "x.jsonl", "x.parquet", "x.npy"])
def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path, name: str) -> None:
    out = put(tmp_path / name, "from before")
    before = out.stat().st_ino
    with writing(out, COLUMNS) as put_row:
        put_row({"a": "x", "b": "y", "cosine": 1.0})
        assert out.read_text() == "from before"
        assert len(os.listdir(tmp_path)) == 2
    assert out.read_bytes() != b"from before"
    assert out.stat().st_ino != before, "renamed, not copied"
    assert os.listdir(tmp_path) == [name]
    put(out, "from before")
    with suppress(KeyboardInterrupt), writing(out, COLUMNS) as put_row:
        put_row({"a": "x", "b": "y", "cosine": 1.0})
        raise KeyboardInterrupt
    assert out.read_text() == "from before"
    assert os.listdir(tmp_path) == [name]


def test_a_result_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    plain = put(tmp_path / "plain", "")
    written = write(tmp_path / "x.csv", COLUMNS, [])
    assert written.stat().st_mode == plain.stat().st_mode


def test_kinds_of_results() -> None:
    check(None)
    check(Path("x.CSV"))
    with pytest.raises(LatteMixError, match=r"^x.doc: these results are written to .csv, .tsv, "):
        check(Path("x.doc"))
    with pytest.raises(LatteMixError, match=r"to .csv, .tsv, .json, .jsonl, .parquet.$"):
        check(Path("x.npy"), but=".npy")


def test_formats_of_mixtures() -> None:
    assert format_for(None, None) == "dense"
    assert format_for(None, "sparse") == "sparse"
    assert format_for(Path("x.npy"), None) == "dense"
    assert format_for(Path("x.npy"), "flat") == "flat"
    assert format_for(Path("x.csv"), None) == "flat"
    with pytest.raises(LatteMixError, match=r"^--format sparse: .npy holds dense or flat.$"):
        format_for(Path("x.npy"), "sparse")
    with pytest.raises(LatteMixError, match=r"^--format dense: .parquet holds flat.$"):
        format_for(Path("x.parquet"), "dense")
