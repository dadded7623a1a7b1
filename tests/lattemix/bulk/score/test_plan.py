"""Files are split into shards that can be read from their first row."""

import csv
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lattemix.bulk.readers import Table, columns_named
from lattemix.bulk.score.plan import Task, make_shards
from lattemix.bulk.sources import Source, list_sources
from model_store import LatteMixError

COLUMNS = ("Question", "answer")
ROWS = [(f'line {i}\nof two, \u2028 "quoted"', f"{'ä' * (i % 5)} {i}") for i in range(23)]


def write_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "answer", "Question"])
        for i, (question, answer) in enumerate(ROWS):
            writer.writerow([i, answer, question])
            file.write("\n" if i % 4 == 0 else "")


def write_jsonl(path: Path) -> None:
    lines = [json.dumps({"answer": b, "n": None, "Question": a}) for a, b in ROWS]
    path.write_text("\n\n".join(lines))


def write_parquet(path: Path) -> None:
    table = pyarrow.table(
        {"n": range(23), **dict(zip(COLUMNS, zip(*ROWS, strict=True), strict=True))}
    )
    parquet.write_table(table, path, row_group_size=7)


WRITERS: dict[str, Callable[[Path], None]] = {
    "x.csv": write_csv,
    "x.jsonl": write_jsonl,
    "x.parquet": write_parquet,
}


def task(shard_rows: int, columns: tuple[str, ...] = COLUMNS) -> Task:
    return Task(
        columns=columns,
        keep=(),
        metrics=("js",),
        parts="parquet",
        shard_rows=shard_rows,
        model="tiny:fp32",
        fingerprint="0",
    )


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("shard_rows", [1, 5, 7, 10, 23, 100])
def test_shards_cover_the_file(tmp_path: Path, name: str, shard_rows: int) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    shards = make_shards(list_sources(path), task(shard_rows))
    assert [shard.rows for shard in shards[:-1]] == [shard_rows] * (len(shards) - 1)
    for shard in reversed(shards):  # in any order
        table = Table(Path(shard.path), columns_named(COLUMNS), shard.start)
        begins = shard.start.rows
        assert [*islice(table, shard.rows)] == ROWS[begins : begins + shard.rows]
    assert sum(shard.rows for shard in shards) == 23


def test_shards_do_not_span_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/x.csv", "a.jsonl", "c.parquet"):
        WRITERS[f"x{Path(name).suffix}"](tmp_path / name)
    (tmp_path / "_temporary").mkdir()
    for name in ("_SUCCESS", ".a.jsonl.crc", "_temporary/x.csv"):
        (tmp_path / name).write_text("metadata")
    shards = make_shards(list_sources(tmp_path), task(20))
    assert [(Path(shard.path).name, shard.rows) for shard in shards] == [
        *[("a.jsonl", 20), ("a.jsonl", 3)],
        *[("x.csv", 20), ("x.csv", 3)],
        *[("c.parquet", 20), ("c.parquet", 3)],
    ]
    assert [shard.part for shard in shards][::5] == [
        "part-00001-of-00006.parquet",
        "part-00006-of-00006.parquet",
    ]


def test_errors_in_later_shards_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    write_csv(path)
    start = make_shards(list_sources(path), task(20))[1].start
    path.write_bytes(path.read_bytes() + b"1,2,3,4\n")
    last = path.read_bytes().count(b"\n")
    with pytest.raises(LatteMixError, match=rf"line {last}: expected 3 columns, found 4\.$"):
        [*Table(path, columns_named(COLUMNS), start)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "a,b\n1,2\n", "expected columns named Question, answer; found a, b."),
        ("x.csv", "question,answer\n1,2\n", "Question, answer; found question, answer."),
        (
            "x.jsonl",
            '["1", "2"]\n',
            "line 1: expected an object with Question, answer; Question and answer as strings.",
        ),
        ("x.jsonl", '{"Question": "1", "answer": null}\n', "line 1: expected an object with"),
        ("x.txt", "1\n", "pairs are read from .csv, .tsv, .jsonl, .parquet"),
        ("x.csv", "Question,answer\n", "There are no rows in "),
        ("x.csv", "", "There are no rows in "),
    ],
)
def test_names_wrong_columns(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LatteMixError) as raised:
        make_shards([Source.at(path)], task(5))
    assert message in str(raised.value)


def test_rejects_a_directory_without_files(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(LatteMixError, match=r"holds no files\.$"):
        list_sources(tmp_path)


def test_rejects_a_link_to_a_directory(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "there")
    with pytest.raises(LatteMixError, match=r"in/link is a link to a directory: name that"):
        list_sources(tmp_path / "in")


def test_file_type_is_the_suffix_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("Question,answer\n1,2\n")
    (tmp_path / "x.csv").symlink_to(tmp_path / "blob")
    assert len(make_shards(list_sources(tmp_path / "x.csv"), task(5))) == 1
    (tmp_path / "y.csv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        list_sources(tmp_path)


def test_rejects_duplicate_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("Question,answer,answer\n1,2,3\n")
    parquet.write_table(
        pyarrow.table([["1"], ["2"], ["3"]], names=["Question", "answer", "answer"]),
        tmp_path / "x.parquet",
    )
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(LatteMixError, match="found Question, answer, answer"):
            make_shards(list_sources(tmp_path / name), task(5))


def test_rejects_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    wrong = pyarrow.array([b"a\xff"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"Question": wrong, "answer": ["1"]}), tmp_path / "x.parquet")
    with pytest.raises(LatteMixError, match=r"x\.parquet cannot be read as Parquet: .*utf-8"):
        make_shards(list_sources(tmp_path / "x.parquet"), task(5))


def test_kept_columns_become_text(tmp_path: Path) -> None:
    columns = {"a": ["x"], "b": ["y"], "n": [7], "f": pyarrow.array([0.1], pyarrow.float32())}
    columns |= {"when": pyarrow.array([1], pyarrow.timestamp("ns")), "list": [[1, None]]}
    columns |= {"none": pyarrow.array([None], pyarrow.int64()), "yes": [True]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    row_format = columns_named(("a", "b"), ("n", "f", "when", "list", "none", "yes"))
    ((*_, n, f, when, several, none, yes),) = Table(tmp_path / "x.parquet", row_format)
    assert (n, f, several, none, yes) == ("7", "0.1", "[1, null]", None, "true")
    assert when.startswith("1970-01-01 00:00:00.000000001")
