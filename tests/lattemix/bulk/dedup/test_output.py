"""Kept rows are copied as they are, to files of the same names."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.lattemix.bulk.dedup.conftest import Run, files_below, random_texts, variant

A, B, C = random_texts(3, seed=5)

# name: header, rows; the third is a duplicate of the first, and the fourth one of the second.
FILES: dict[str, tuple[bytes, list[bytes]]] = {
    "x.txt": (b"", [f"{text}\r\n".encode() for text in (A, B, A, variant(B), C)]),
    "bom.txt": (b"\xef\xbb\xbf", [f"{text}\n".encode() for text in (A, B, A, variant(B), C)]),
    "x.csv": (
        b'\xef\xbb\xbfid, "text" ,note\r\n'.replace(b' "text" ', b"text"),
        [
            f'1,"{A}","say ""hi"",\n\r\n ok"\r\n'.encode(),
            f'\r\n"2",{B},é\n'.encode(),
            f"3,{A},\n".encode(),
            f'\n\n4,"{variant(B)}",x\n'.encode(),
            f'5,"{C}\n\n",   '.encode(),  # without a line end
        ],
    ),
    "bare.csv": (b"", [f'"{text}"\n'.encode() for text in (A, B, A, variant(B), C)]),
    "x.tsv": (
        b"text\tnote\n",
        [f'{text}\t"{i}\n'.encode() for i, text in enumerate((A, B, A, variant(B), C))],
    ),
    "x.jsonl": (
        b"",
        [
            f'{{"n": 1.0, "text" : "{A}"}}\n'.encode(),
            f' {{"text": "{B}", "n": [1,\t2]}}\r\n'.encode(),
            f'"{A}"\n'.encode(),
            f'\n["{variant(B)}"]\n'.encode(),
            f'{{"text": "{C}", "n": "\\u00e9"}}'.encode(),
        ],
    ),
    "x.TXT": (b"", [f"{text}\n".encode() for text in (A, B, A, variant(B), C)]),
}


@pytest.mark.parametrize("name", FILES)
def test_copies_the_bytes_of_kept_rows(tmp_path: Path, run: Run, name: str) -> None:
    header, rows = FILES[name]
    source = tmp_path / name
    source.write_bytes(header + b"".join(rows))
    run(source, tmp_path / "out")
    kept = tmp_path / "out" / f"kept{source.suffix}"
    assert kept.read_bytes() == header + rows[0] + rows[1] + rows[4]


@pytest.mark.parametrize("name", ["x.csv", "x.txt", "x.jsonl"])
def test_a_file_without_duplicates_is_copied_whole(tmp_path: Path, run: Run, name: str) -> None:
    header, rows = FILES[name]
    content = header + rows[0] + rows[1] + rows[4]
    (tmp_path / name).write_bytes(content)
    summary = run(tmp_path / name, tmp_path / "out")
    assert summary.kept == summary.rows == 3
    assert (tmp_path / "out" / f"kept{Path(name).suffix}").read_bytes() == content


def test_the_output_is_without_duplicates(tmp_path: Path, run: Run) -> None:
    header, rows = FILES["x.csv"]
    (tmp_path / "x.csv").write_bytes(header + b"".join(rows))
    run(tmp_path / "x.csv", tmp_path / "out")
    kept = tmp_path / "out/kept.csv"
    assert run(kept, tmp_path / "again").kept == 3
    assert (tmp_path / "again/kept.csv").read_bytes() == kept.read_bytes()


def columns(count: int) -> pyarrow.Table:
    texts = [*random_texts(count - 1, seed=3), variant(random_texts(1, seed=3)[0])]
    values: dict[str, Any] = {
        "id": pyarrow.array(range(count), pyarrow.uint16()),
        "text": pyarrow.array(texts, pyarrow.large_string()),
        "list": [[i, None] for i in range(count)],
        "struct": [{"a": i, "b": {"c": str(i)}} for i in range(count)],
        "when": pyarrow.array(
            [datetime.datetime(2024, 1, 1)] * count, pyarrow.timestamp("us", "UTC")
        ),
        "price": pyarrow.array([Decimal("1.10")] * count, pyarrow.decimal128(10, 2)),
        "kind": pyarrow.array(["x", "y"] * (count // 2)).dictionary_encode(),
        "none": pyarrow.nulls(count),
        "bytes": [b"\xff\x00"] * count,
        "half": pyarrow.array([float("nan")] * count, pyarrow.float32()),
    }
    table = pyarrow.table(values)
    return table.replace_schema_metadata({"origin": "a test"})


@pytest.mark.parametrize("count", [6, 5000])
def test_copies_all_columns_and_types_of_parquet(tmp_path: Path, run: Run, count: int) -> None:
    table = columns(count)
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    run(tmp_path / "x.parquet", tmp_path / "out", threshold=0.999)
    kept = parquet.read_table(tmp_path / "out/kept.parquet")
    assert kept.schema.equals(parquet.read_schema(tmp_path / "x.parquet"), check_metadata=True)
    ids = kept["id"].to_pylist()
    assert ids[0] == 0
    assert count - 1 not in ids
    expected = parquet.read_table(tmp_path / "x.parquet").take(ids)
    assert kept.drop_columns("half").equals(expected.drop_columns("half"))
    assert kept["half"].to_numpy().tobytes() == expected["half"].to_numpy().tobytes()


def test_drops_all_rows_of_a_parquet_file(tmp_path: Path, run: Run) -> None:
    table = pyarrow.table({"text": [A, B], "n": [1, 2]})
    parquet.write_table(table, tmp_path / "x.parquet")
    run(tmp_path / "x.parquet", tmp_path / "out", against=tmp_path / "x.parquet")
    kept = parquet.read_table(tmp_path / "out/kept.parquet")
    assert kept.num_rows == 0
    assert kept.schema.equals(table.schema)
    dropped = parquet.read_table(tmp_path / "out/dropped.parquet")
    assert dropped["row"].to_pylist() == [1, 2]


def test_files_of_a_directory_keep_their_names(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "in"
    for name, content in {
        "b/c/x.csv": f"text,n\n{A},1\n{B},2\n",
        "b/x.csv": f"n,text\n3,{variant(A)}\n",
        "a.txt": f"{B}\n{C}\n",
        "z.jsonl": f'{{"text": "{variant(C)}"}}\n{{"text": "a dog runs"}}\n',
        "_meta": "x",
        ".x.csv.crc": "x",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    summary = run(source, tmp_path / "out")
    assert (summary.rows, summary.kept) == (7, 4)
    kept = {name: content.decode() for name, content in files_below(tmp_path / "out/kept").items()}
    assert kept == {
        "a.txt": f"{B}\n{C}\n",
        "b/c/x.csv": f"text,n\n{A},1\n",
        "b/x.csv": "n,text\n",
        "z.jsonl": '{"text": "a dog runs"}\n',
    }
    rows = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").open()]
    assert [[row[key] for key in ("file", "row", "kept_file", "kept_row")] for row in rows] == [
        ["b/c/x.csv", 2, "a.txt", 1],
        ["b/x.csv", 1, "b/c/x.csv", 1],
        ["z.jsonl", 1, "a.txt", 2],
    ]


NAMES = ["file", "row", "text", "kept_file", "kept_row", "kept_text", "score", "model"]
NAMES += ["fingerprint"]


def test_lists_dropped_rows_with_the_kept_ones(tmp_path: Path, run: Run, static_store: Any) -> None:
    fingerprint = static_store.open("static").manifest.fingerprint
    source = tmp_path / "x.csv"
    source.write_text(f'id,text\n1,"{A}"\n2,"{A}"\n3,{B}\n4,"{variant(B)}\n"\n')
    run(source, tmp_path / "out")
    assert (tmp_path / "out/dropped.csv").read_text() == (
        ",".join(NAMES)
        + f"\nx.csv,2,{A},x.csv,1,{A},1.0,static:fp32,{fingerprint}"
        + f'\nx.csv,4,"{variant(B)}\n",x.csv,3,{B},1.0,static:fp32,{fingerprint}\n'
    )


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("x.txt", "dropped.jsonl"),
        ("x.csv", "dropped.csv"),
        ("x.tsv", "dropped.tsv"),
        ("x.jsonl", "dropped.jsonl"),
        ("x.TXT", "dropped.jsonl"),
    ],
)
def test_the_list_of_dropped_rows_has_the_type_of_the_input(
    tmp_path: Path, run: Run, name: str, dropped: str
) -> None:
    header, rows = FILES[name]
    (tmp_path / name).write_bytes(header + b"".join(rows))
    run(tmp_path / name, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"kept{Path(name).suffix}", dropped, "summary.json"}


def test_parquet_lists_dropped_rows_with_types(tmp_path: Path, run: Run) -> None:
    parquet.write_table(pyarrow.table({"text": [A, B, variant(A)]}), tmp_path / "x.parquet")
    run(tmp_path / "x.parquet", tmp_path / "out")
    dropped = parquet.read_table(tmp_path / "out/dropped.parquet")
    assert dropped.column_names == NAMES
    assert str(dropped.schema.field("row").type) == "int64"
    assert str(dropped.schema.field("score").type) == "float"
    assert dropped.num_rows == 1
