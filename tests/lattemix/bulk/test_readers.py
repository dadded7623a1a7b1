import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from lattemix.bulk.readers import read_pairs, read_texts
from model_store import LatteMixError


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
def test_reads_pairs(tmp_path: Path, name: str, content: Any) -> None:
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
def test_reads_sentences(tmp_path: Path, name: str, content: Any) -> None:
    texts = [text.replace("\t", " ") for text in read_texts(put(tmp_path / name, content))]
    assert texts == ["1, 2", "", "3\u2028 4"]


def test_quotes_in_tsv_are_text(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tsv", 'a\tb\n"Yes, he said.\tNo"\nx\ty\n')
    assert list(read_pairs(path)) == [('"Yes, he said.', 'No"'), ("x", "y")]


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("read", "name", "content", "message"),
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
            ": pairs are read from .csv, .tsv, .jsonl, .parquet, or - for standard input; "
            "text has no columns.",
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
def test_errors_name_the_file_and_the_line(
    tmp_path: Path, read: Callable[[Path], Any], name: str, content: Any, message: str
) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(LatteMixError) as raised:
        list(read(path))
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv", "1,2\n3\n"), ("x.tsv", "1\t2\n3\n"), ("x.jsonl", '["1", "2"]\nnone\n')],
)
def test_reads_rows_lazily(tmp_path: Path, name: str, content: str) -> None:
    rows = read_pairs(put(tmp_path / name, content))
    assert next(rows) == ("1", "2")
    with pytest.raises(LatteMixError, match="line 2"):
        next(rows)
