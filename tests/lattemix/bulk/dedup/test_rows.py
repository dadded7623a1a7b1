import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from pyarrow import parquet

from lattemix.bulk.dedup.rows import Rows, read_numbers, read_rows
from lattemix.bulk.readers import TEXTS, columns_named
from model_store import LatteMixError

NUMBERED = columns_named(("text",), kept=("n",))


def read(directory: Path, *files: Path, advance: Callable[[int], object] = id) -> Rows:
    read_rows(directory, files, TEXTS, advance)
    return Rows.load(directory)


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_equal_texts_have_one_id_in_order_of_their_first_rows(tmp_path: Path) -> None:
    first = put(tmp_path / "a.txt", b"b\na\nb\n")
    second = put(tmp_path / "b.txt", b"c\na\n\nc\n")
    rows = read(tmp_path, first, second)
    assert rows.text.tolist() == [0, 1, 0, 2, 1, 3, 2]
    assert rows.first.tolist() == [0, 1, 3, 5]
    assert rows.texts(np.array([3, 2, 0])) == ["", "c", "b"]
    assert rows.row_texts(np.arange(7)) == ["b", "a", "b", "c", "a", "", "c"]
    assert len(rows) == 7


def test_texts_are_equal_only_if_all_their_bytes_are(tmp_path: Path) -> None:
    texts = ["é", "e\u0301", "a", "A", " a", "a "]  # no normalization
    rows = read(tmp_path, put(tmp_path / "x.txt", "\n".join(texts).encode()))
    assert rows.text.tolist() == [*range(6)]
    assert rows.lengths.tolist() == [2, 3, 1, 1, 2, 2]


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=1, max_size=40))
def test_reads_any_texts(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    directory = tmp_path_factory.mktemp("rows")
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    rows = read(directory, put(directory / "x.jsonl", lines.encode()))
    assert rows.row_texts(np.arange(len(texts))) == texts
    assert rows.texts(rows.text) == texts
    distinct = [*dict.fromkeys(texts)]
    assert rows.texts(np.arange(len(rows.first))) == distinct


CONTENTS: dict[str, tuple[bytes, int, list[bytes], list[str]]] = {
    # name: (content, bytes of the header, rows, texts)
    "lines.txt": (b"", 0, [b"a\n", b"\n", b"b\r\n", b"c"], ["a", "", "b", "c"]),
    "bom.txt": (b"", 0, [b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"], ["a", "\ufeffb"]),
    "header.csv": (b"n,text\n", 7, [b"1,a\n", b"2,b\n"], ["a", "b"]),
    "bom.csv": (b"\xef\xbb\xbftext,n\r\n", 11, [b"a,1\r\n", b"b,2"], ["a", "b"]),
    "none.csv": (b"", 0, [b"a\n", b"b\n"], ["a", "b"]),
    "blank.csv": (b"text\n", 5, [b"\n\na\n", b"\nb\n"], ["a", "b"]),
    "quoted.csv": (
        b'"text",n\n',
        9,
        [b'"a\nb",1\n', b'"""c"", d\r\n\r\ne",2\n', b'"",3\n', b'"x"\n'.replace(b"\n", b",4\n")],
        ["a\nb", '"c", d\r\n\r\ne', "", "x"],
    ),
    "quotes.tsv": (b"text\tn\n", 7, [b'"a\t1\n', b'b"\t2\n'], ['"a', 'b"']),
    "blank.jsonl": (b"", 0, [b'"a"\n', b'\n  \n{"text": "b"}\n', b'["c"]'], ["a", "b", "c"]),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_rows_end_where_they_do_in_their_file(tmp_path: Path, name: str) -> None:
    header, length, contents, texts = CONTENTS[name]
    rows = read(tmp_path, put(tmp_path / name, header + b"".join(contents)))
    assert rows.row_texts(np.arange(len(rows))) == texts
    assert rows.headers.tolist() == [length] == [len(header)]
    ends = (len(header) + np.cumsum([len(content) for content in contents])).tolist()
    assert rows.ends.tolist() == ends


def test_parquet_rows_have_no_ends(tmp_path: Path) -> None:
    table = pyarrow.table({"n": range(5000), "text": [f"{i % 7}" for i in range(5000)]})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    rows = read(tmp_path, tmp_path / "x.parquet")
    assert rows.texts(np.arange(7)) == [*"0123456"]
    assert (rows.ends == 0).all()
    assert rows.headers.tolist() == [0]


def test_locates_rows_in_their_files(tmp_path: Path) -> None:
    contents = [b"", b"a\nb\n", b"", b"c\n", b""]
    files = [put(tmp_path / f"{i}.txt", content) for i, content in enumerate(contents)]
    rows = read(tmp_path, *files)
    assert rows.counts.tolist() == [0, 2, 0, 1, 0]
    assert rows.starts.tolist() == [0, 0, 2, 2, 3, 3]
    assert [rows.locate(row) for row in range(3)] == [(1, 1), (1, 2), (3, 1)]


def test_reports_each_row_once(tmp_path: Path) -> None:
    files = [put(tmp_path / f"{n}.txt", b"a\n" * n) for n in (0, 10_000, 10_001, 3)]
    steps: list[int] = []
    read(tmp_path, *files, advance=steps.append)
    assert sum(steps) == 20_004
    assert max(steps) == 10_000


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    path = put(tmp_path / "x.txt", b"a\n\xff\n")
    with pytest.raises(LatteMixError, match="line 2: this is not UTF-8 text"):
        read(tmp_path, path)
    assert [*tmp_path.iterdir()] == [path]


def numbers(path: Path, values: list[Any]) -> list[float]:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"text": ["a"] * len(values), "n": values}), path)
    elif path.suffix == ".jsonl":
        lines = (json.dumps({"text": "a", "n": value}) + "\n" for value in values)
        path.write_text("".join(lines))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "n"), *(("a", value) for value in values)])
    found: list[float] = read_numbers([path], NUMBERED).tolist()
    return found


def test_reads_numbers_and_missing_ones(tmp_path: Path) -> None:
    assert numbers(tmp_path / "x.csv", ["3", "-1.5e3", "", " 7 ", "inf"]) == [
        *[3, -1500, -math.inf, 7, math.inf]
    ]
    assert numbers(tmp_path / "x.jsonl", [3, None, "4", -0.5]) == [3, -math.inf, 4, -0.5]
    assert numbers(tmp_path / "x.parquet", [3, None, 5]) == [3, -math.inf, 5]


@pytest.mark.parametrize("value", ["many", "nan", "1,5", "--", True, [1]])
def test_names_the_row_of_a_value_that_is_no_number(tmp_path: Path, value: Any) -> None:
    text = json.dumps(value) if isinstance(value, bool | list) else value
    message = rf"x\.jsonl, row 2: column n is '{text}', not a number\.$".replace("[", r"\[")
    with pytest.raises(LatteMixError, match=message):
        numbers(tmp_path / "x.jsonl", [1, value])


def test_quotes_only_the_beginning_of_a_value_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(LatteMixError) as raised:
        numbers(tmp_path / "x.csv", ["x" * 10_000])
    assert len(str(raised.value)) < len(str(tmp_path)) + 200


def test_numbers_of_several_files_follow_each_other(tmp_path: Path) -> None:
    for name, value in (("a.csv", 1), ("b.csv", 2)):
        (tmp_path / name).write_text(f"n,text\n{value},a\n")
    files = [tmp_path / "b.csv", tmp_path / "a.csv"]
    assert read_numbers(files, NUMBERED).tolist() == [2, 1]
