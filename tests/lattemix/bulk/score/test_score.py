"""`lattemix score` in this process: the numbers, and what is said of a mistake."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from lattemix import cli, similarity
from lattemix.encoder import Encoder
from model_store import Artifact, LatteMixError, Store
from tests.lattemix.bulk.score.conftest import PAIRS, Run, names, write


def test_every_pair_is_scored_as_the_encoder_does(
    tmp_path: Path, run: Run, encoder: Encoder
) -> None:
    tally = run(write(tmp_path / "x.parquet"), tmp_path / "out")
    assert (tally.rows, tally.refused, tally.truncated) == (25, 0, 0)
    assert names(tmp_path / "out") == [
        "_score.json",
        *(f"part-0000{i}-of-00003.parquet" for i in (1, 2, 3)),
    ]
    table = parquet.read_table(tmp_path / "out")  # as one, passing over the summary
    assert table.column_names == ["a", "b", "cosine", "js", "truncated", "error"]
    assert [*zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)] == PAIRS
    sides = [encoder.encode(side).mixtures for side in zip(*PAIRS, strict=True)]
    for metric in ("cosine", "js"):
        expected = similarity.similarity(metric, *sides)
        np.testing.assert_allclose(table[metric].to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(("parts", "shape"), [("parquet", (20,)), ("npy", (4, 5))])
def test_one_column_is_embedded(
    tmp_path: Path, run: Run, encoder: Encoder, parts: str, shape: tuple[int, ...]
) -> None:
    run(write(tmp_path / "x.parquet"), tmp_path / "out", columns=["b"], parts=parts)
    part = tmp_path / "out" / f"part-00003-of-00003.{parts}"
    found = np.load(part) if parts == "npy" else parquet.read_table(part)["embedding"].to_pylist()
    expected = encoder.encode([b for _, b in PAIRS[20:]]).mixtures
    np.testing.assert_allclose(found, expected.reshape(5, *shape), atol=1e-6)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl"])
def test_other_columns_are_carried_over(tmp_path: Path, run: Run, name: str) -> None:
    source = write(tmp_path / "x.parquet", PAIRS[:2])
    if name == "x.csv":
        source = tmp_path / name
        source.write_text(
            "b,id,a\n" + "".join(f"{b},{i},{a}\n" for i, (a, b) in enumerate(PAIRS[:2]))
        )
    if name == "x.jsonl":
        source = tmp_path / name
        lines = [json.dumps({"a": a, "b": b, "id": i}) for i, (a, b) in enumerate(PAIRS[:2])]
        source.write_text("\n".join(lines))
    run(source, tmp_path / "out", keep=["id"])
    table = parquet.read_table(tmp_path / "out")
    assert table.column_names == ["id", "a", "b", "cosine", "js", "truncated", "error"]
    assert table["id"].to_pylist() == ["0", "1"]
    assert table["a"].to_pylist() == [a for a, _ in PAIRS[:2]]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_results_are_of_the_inputs_kind(tmp_path: Path, run: Run, kind: str) -> None:
    source = tmp_path / f"x.{kind}"
    source.write_text("a,b\na dog,a dog\n" if kind == "csv" else '{"a": "a dog", "b": "a dog"}')
    run(source, tmp_path / "out", parts=None)
    assert names(tmp_path / "out") == ["_score.json", f"part-00001-of-00001.{kind}"]


def test_rows_without_words_cost_only_themselves(tmp_path: Path, run: Run) -> None:
    rows = [("a dog", "a dog"), ("", "a dog"), ("a dog", " "), ("a dog", "dog " * 40)]
    tally = run(write(tmp_path / "x.parquet", rows), tmp_path / "out", parts="jsonl")
    reason = "a is empty: the model finds no words in it."
    assert (tally.rows, tally.refused, tally.truncated) == (4, 2, 1)
    assert tally.first_reason == f"{tmp_path / 'x.parquet'}, row 2: {reason}"
    lines = (tmp_path / "out" / "part-00001-of-00001.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert found[0]["cosine"] == pytest.approx(1)
    assert found[1] == {"a": "", "b": "a dog", "error": reason}
    assert found[2]["error"].startswith("b is empty")
    assert (found[3]["truncated"], found[3]["js"] < 1) == (1, True)


def test_only_rows_without_words(tmp_path: Path, run: Run) -> None:
    tally = run(write(tmp_path / "x.parquet", [("", " ")] * 3), tmp_path / "out")
    assert (tally.rows, tally.refused) == (3, 3)


@pytest.mark.parametrize(
    ("rows", "changed", "says"),
    [
        ([("x", "y")] * 20 + [("x", None)], {}, r"row 21: column b is null\.$"),
        ([("x", 1)], {}, r"row 1: column b is not text\.$"),
        (PAIRS, {"columns": ("a", "c")}, r"expected columns named a, c; found a, b, id\.$"),
        (PAIRS, {"columns": ("a", "b", "c")}, "name two to compare, or one to embed"),
        (PAIRS, {"columns": ("a", "a")}, "would have two columns 'a': name others"),
        (PAIRS, {"columns": ("a", "js")}, "would have two columns 'js': name others"),
        (PAIRS, {"keep": ("error",)}, "would have two columns 'error': name others"),
        (PAIRS, {"keep": ("n",)}, r"expected columns named a, b, n; found a, b, id\.$"),
    ],
)
def test_a_mistake_is_found_before_the_work(
    tmp_path: Path, run: Run, rows: Any, changed: dict[str, Any], says: str
) -> None:
    source = write(tmp_path / "x.parquet", rows)
    with pytest.raises(LatteMixError, match=says):
        run(source, tmp_path / "out", **changed)
    assert names(tmp_path) == ["x.parquet"]


def test_a_corrupt_file_is_found_before_the_work(tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet")
    broken = write(tmp_path / "in" / "b.parquet")
    content = bytearray(broken.read_bytes())
    content[4:60] = bytes(56)  # its footer is fine
    broken.write_bytes(content)
    with pytest.raises(LatteMixError, match=r"b\.parquet cannot be read as Parquet: "):
        run(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == ["in"]


def test_a_metric_that_the_model_lacks_is_named(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Artifact, "centre", None)
    with pytest.raises(LatteMixError, match="'centred' needs a model that carries a centre"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out", metrics=("centred",))
    assert names(tmp_path) == ["x.parquet"]


def test_results_are_not_written_into_what_is_read(tmp_path: Path, run: Run) -> None:
    write(tmp_path / "x.parquet")
    with pytest.raises(LatteMixError, match=r"is in .*, which is read: choose another place"):
        run(tmp_path, tmp_path / "out")


def test_many_different_empty_texts_are_found_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = Encoder.encode

    def counted(encoder: Encoder, texts: Sequence[str]) -> Any:
        calls.append(len(texts))
        return encode(encoder, texts)

    monkeypatch.setattr(Encoder, "encode", counted)
    rows = [("a dog", " " * i) for i in range(50)]
    assert run(write(tmp_path / "x.parquet", rows), tmp_path / "out", shard_rows=50).refused == 50
    assert calls == [51, 1]


@pytest.mark.parametrize("refused", [False, True])
def test_the_command_says_what_it_did(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    refused: bool,
) -> None:
    rows = [("a dog", "dog " * 40), ("a dog", "" if refused else "a dog")]
    source, output = write(tmp_path / "x.parquet", rows), tmp_path / "out"
    where = ["--store", str(store.root), "--model", "tiny"]
    monkeypatch.setattr(sys, "argv", ["lattemix", "score", str(source), str(output), *where])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == int(refused)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        f"{output} is complete: 2 rows.",
        "Note: 1 sentences were longer than the model reads, and cut.",
    ]
    assert (f"refused, the first because: {source}, row 2: b is empty" in said[-1]) == refused
