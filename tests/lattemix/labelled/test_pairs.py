from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from lattemix import LatteMixError
from lattemix.labelled.pairs import LabelError, parse_scale, read_labelled

ROWS = [("a cat", "a dog", 1), ("the sea", "a dog", 0)]


def write(tmp_path: Path, text: str, name: str = "pairs.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_csv_tsv_json_lines_and_parquet(tmp_path: Path) -> None:
    csv = write(tmp_path, 'sentence1,label,sentence2\n"a cat",1,a dog\nthe sea,0,a dog\n')
    tsv = write(tmp_path, "a\tb\tlabel\na cat\ta dog\t1\nthe sea\ta dog\t0.0\n", "pairs.tsv")
    lines = '{"a": "a cat", "b": "a dog", "label": true}\n["the sea", "a dog", 0]\n'
    jsonl = write(tmp_path, lines, "pairs.jsonl")
    table = {name: [row[i] for row in ROWS] for i, name in enumerate(("a", "b", "label"))}
    parquet.write_table(pyarrow.table(table), tmp_path / "pairs.parquet")
    for path in (csv, tsv, jsonl, tmp_path / "pairs.parquet"):
        pairs = read_labelled(path)
        assert [*zip(pairs.a, pairs.b, pairs.labels.tolist(), strict=True)] == ROWS
        assert pairs.kind == "probability"


def test_reads_named_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "id,q1,q2,same\n7,a cat,a dog,1\n")
    pairs = read_labelled(path, ["q1", "q2", "same"])
    assert (pairs.a, pairs.b, pairs.labels.tolist()) == (["a cat"], ["a dog"], [1])


def test_ratings_have_a_scale(tmp_path: Path) -> None:
    pairs = read_labelled(write(tmp_path, "a,b,label\nx,y,2\nx,z,3.5\n"), scale=(1, 5))
    assert pairs.kind == "rating"
    assert pairs.targets.tolist() == [0.25, 0.625]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\nx,y\n", "expected columns named a, b, label or sentence1, sentence2, label; found"),
        ("a,b,label\nx,y,1\n ,y,0\n", "row 2: the first sentence is empty"),
        ("a,b,label\nx,y,1\nx,,0\n", "row 2: the second sentence is empty"),
        ("a,b,label\nx,y,\n", "row 1: label '' is not a number"),
        ("a,b,label\nx,y,yes\n", "row 1: label 'yes' is not a number"),
        ("a,b,label\nx,y,nan\n", "row 1: label 'nan' is not a number"),
        (
            "a,b,label\nx,y,1\nx,z,3\n",
            "row 2: label 3 is neither 0 nor 1: for ratings, give their scale",
        ),
        ("a,b,label\n", "There are no labels in"),
        ("a,b,label\nx,y\n", "line 2: expected 3 columns, found 2"),
    ],
)
def test_names_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LatteMixError, match=message):
        read_labelled(write(tmp_path, text))


def test_names_a_label_outside_its_scale(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,label\nx,y,4\nx,z,6\n")
    with pytest.raises(LabelError, match="row 2: label 6 is outside the scale from 0 to 5"):
        read_labelled(path, scale=(0, 5))


def test_names_wrong_column_options(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,label\nx,y,1\n")
    with pytest.raises(
        LabelError, match="--columns a,b: name two columns of sentences and one of labels"
    ):
        read_labelled(path, ["a", "b"])
    with pytest.raises(LatteMixError, match="expected columns named q1, q2, label; found a, b"):
        read_labelled(path, ["q1", "q2", "label"])


@pytest.mark.parametrize("text", ["5", "5,0", "0,0", "a,b", "0,inf", "0,5,6"])
def test_rejects_invalid_scales(text: str) -> None:
    with pytest.raises(LabelError, match=f"--scale {text}: give the lowest and the highest label"):
        parse_scale(text)


def test_parses_scales() -> None:
    assert parse_scale("0,5") == (0, 5)
    assert parse_scale("-1, 1") == (-1, 1)
    assert parse_scale(None) is None


def labelled(tmp_path: Path, labels: list[int], same: bool = False) -> Path:
    rows = [f"{'x' if same else f'text {i}'},y,{label}" for i, label in enumerate(labels)]
    return write(tmp_path, "\n".join(["a,b,label", *rows]) + "\n")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 0, 1, 1], r"There are 5 labels in .*pairs.csv: at least 20 are needed"),
        ([1] * 30, r"0 of 30 labels in .*pairs.csv are 0: at least 5 are needed"),
        ([0] * 30 + [1] * 4, "4 of 34 labels in .* are 1: at least 5"),
    ],
)
def test_check_rejects_too_few_labels(tmp_path: Path, labels: list[int], message: str) -> None:
    with pytest.raises(LabelError, match=message):
        read_labelled(labelled(tmp_path, labels)).check()


def test_check_counts_distinct_pairs(tmp_path: Path) -> None:
    rows = [f"text {i % 2},y,{i % 2}" for i in range(40)]
    with pytest.raises(LabelError, match=r"There are 2 distinct pairs in .*: at least 20"):
        read_labelled(write(tmp_path, "\n".join(["a,b,label", *rows]) + "\n")).check()


def test_check_rejects_equal_ratings(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match=r"All labels in .* are 3"):
        read_labelled(labelled(tmp_path, [3] * 30), scale=(0, 5)).check()


def test_check_rejects_contradictory_labels(tmp_path: Path) -> None:
    rows = [f"text {i},y,{i % 2}" for i in range(20)]
    path = write(tmp_path, "\n".join(["a,b,label", *rows, "y,text 3,0"]) + "\n")
    with pytest.raises(LabelError, match="rows 4 and 21 are the same pair with labels 1 and 0"):
        read_labelled(path).check()


def test_check_allows_one_contradiction_in_a_hundred(tmp_path: Path) -> None:
    rows = [f"text {i},y,{i % 2}" for i in range(200)]
    again = [f"text {i},y,{1 - i % 2}" for i in range(3)]
    header = ["a,b,label", *rows]
    pairs = read_labelled(write(tmp_path, "\n".join([*header, *again[:2]]) + "\n")).check()
    assert pairs.contradictions == [(0, 200), (1, 201)]
    message = "3 labels contradict others; rows 1 and 201 are the same pair with labels 0 and 1"
    with pytest.raises(LabelError, match=f"{message}: remove one of each"):
        read_labelled(write(tmp_path, "\n".join([*header, *again]) + "\n")).check()


def test_check_allows_similar_ratings_of_a_pair(tmp_path: Path) -> None:
    rows = [f"text {i},y,{i % 5}" for i in range(20)]
    path = write(tmp_path, "\n".join(["a,b,label", *rows, "y,text 3,4"]) + "\n")
    assert len(read_labelled(path, scale=(0, 5)).check()) == 21


def test_take_keeps_the_scale(tmp_path: Path) -> None:
    pairs = read_labelled(write(tmp_path, "a,b,label\nx,y,4\nx,z,2\n"), scale=(0, 5))
    (taken,) = [pairs.take(np.array([1]))]
    assert (taken.a, taken.b, taken.labels.tolist(), taken.scale) == (["x"], ["z"], [2], (0, 5))
