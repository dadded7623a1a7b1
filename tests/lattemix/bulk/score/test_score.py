"""`lattemix score` in this process: results and errors."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from lattemix import cli, similarity
from lattemix.bulk.mixtures import read_mixtures
from lattemix.encoder import Encoder
from lattemix.settings import Truncate
from model_store import Artifact, LatteMixError, Store
from tests.lattemix.bulk.score.conftest import PAIRS, Run, names, write

ORIGIN = ("model", "fingerprint")


def test_scores_every_pair(tmp_path: Path, run: Run, encoder: Encoder) -> None:
    tally = run(write(tmp_path / "x.parquet"), tmp_path / "out")
    assert (tally.rows, tally.rejected, tally.truncated) == (25, 0, 0)
    assert names(tmp_path / "out") == [
        "_score.json",
        *(f"part-0000{i}-of-00003.parquet" for i in (1, 2, 3)),
    ]
    table = parquet.read_table(tmp_path / "out")  # skips the summary
    assert table.column_names == ["a", "b", "cosine", "js", "truncated", "error", *ORIGIN]
    assert [*zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)] == PAIRS
    sides = [encoder.encode(side).mixtures for side in zip(*PAIRS, strict=True)]
    for metric in ("cosine", "js"):
        expected = similarity.similarity(metric, *sides)
        np.testing.assert_allclose(table[metric].to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(("parts", "shape"), [("parquet", (20,)), ("npy", (4, 5))])
def test_encodes_one_column(
    tmp_path: Path, run: Run, encoder: Encoder, parts: str, shape: tuple[int, ...]
) -> None:
    run(write(tmp_path / "x.parquet"), tmp_path / "out", columns=["b"], parts=parts)
    part = tmp_path / "out" / f"part-00003-of-00003.{parts}"
    mixtures = (
        np.load(part) if parts == "npy" else parquet.read_table(part)["embedding"].to_pylist()
    )
    expected = encoder.encode([b for _, b in PAIRS[20:]]).mixtures
    np.testing.assert_allclose(mixtures, expected.reshape(5, *shape), atol=1e-6)
    fingerprint = encoder.manifest.fingerprint
    assert {row.fingerprint for row in read_mixtures(part)} == {fingerprint}
    task = json.loads((tmp_path / "out" / "_score.json").read_text())["task"]
    assert (task["model"], task["fingerprint"]) == ("tiny:fp32", fingerprint)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl"])
def test_copies_kept_columns(tmp_path: Path, run: Run, name: str) -> None:
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
    assert table.column_names == ["id", "a", "b", "cosine", "js", "truncated", "error", *ORIGIN]
    assert table["id"].to_pylist() == ["0", "1"]
    assert table["a"].to_pylist() == [a for a, _ in PAIRS[:2]]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_results_have_the_inputs_file_type(tmp_path: Path, run: Run, kind: str) -> None:
    source = tmp_path / f"x.{kind}"
    source.write_text("a,b\na dog,a dog\n" if kind == "csv" else '{"a": "a dog", "b": "a dog"}')
    run(source, tmp_path / "out", parts=None)
    assert names(tmp_path / "out") == ["_score.json", f"part-00001-of-00001.{kind}"]


def test_rejects_only_empty_rows(tmp_path: Path, run: Run) -> None:
    rows = [("a dog", "a dog"), ("", "a dog"), ("a dog", " "), ("a dog", "dog " * 40)]
    tally = run(write(tmp_path / "x.parquet", rows), tmp_path / "out", parts="jsonl")
    reason = "a is empty: the model finds no words in it."
    assert (tally.rows, tally.rejected, tally.truncated) == (4, 2, 0)
    assert tally.first_rejection == f"{tmp_path / 'x.parquet'}, row 2: {reason}"
    lines = (tmp_path / "out" / "part-00001-of-00001.jsonl").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    assert results[0]["cosine"] == pytest.approx(1)
    assert results[1].keys() == {"a", "b", "error", *ORIGIN}
    assert (results[1]["a"], results[1]["b"], results[1]["error"]) == ("", "a dog", reason)
    assert results[2]["error"].startswith("b is empty")
    assert (results[3]["truncated"], results[3]["js"] < 1) == (0, True)


def test_rejects_every_row_of_a_file(tmp_path: Path, run: Run) -> None:
    tally = run(write(tmp_path / "x.parquet", [("", " ")] * 3), tmp_path / "out")
    assert (tally.rows, tally.rejected) == (3, 3)


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([("x", "y")] * 20 + [("x", None)], {}, r"row 21: column b is null\.$"),
        ([("x", 1)], {}, r"row 1: column b is not text\.$"),
        (PAIRS, {"columns": ("a", "c")}, r"expected columns named a, c; found a, b, id\.$"),
        (PAIRS, {"columns": ("a", "b", "c")}, "name two to compare, or one to embed"),
        (PAIRS, {"columns": ("a", "a")}, "would have two columns 'a': --columns and --keep must"),
        (PAIRS, {"columns": ("a", "js")}, "would have two columns 'js': --columns"),
        (PAIRS, {"keep": ("fingerprint",)}, "would have two columns 'fingerprint': --columns"),
        (PAIRS, {"keep": ("error",)}, "would have two columns 'error': --columns"),
        (PAIRS, {"metrics": None, "keep": ("centred",)}, "would have two columns 'centred': --col"),
        (PAIRS, {"keep": ("n",)}, r"expected columns named a, b, n; found a, b, id\.$"),
    ],
)
def test_invalid_arguments_leave_nothing_behind(
    tmp_path: Path, run: Run, rows: Any, changes: dict[str, Any], message: str
) -> None:
    source = write(tmp_path / "x.parquet", rows)
    with pytest.raises(LatteMixError, match=message):
        run(source, tmp_path / "out", **changes)
    assert names(tmp_path) == ["x.parquet"]


def test_a_corrupt_file_leaves_nothing_behind(tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet")
    broken = write(tmp_path / "in" / "b.parquet")
    content = bytearray(broken.read_bytes())
    content[4:60] = bytes(56)  # not the footer
    broken.write_bytes(content)
    with pytest.raises(LatteMixError, match=r"b\.parquet cannot be read as Parquet: "):
        run(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == ["in"]


def test_rejects_a_metric_that_the_model_lacks(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Artifact, "centre", None)
    with pytest.raises(LatteMixError, match="'centred' needs a model that carries a centre"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out", metrics=("centred",))
    assert names(tmp_path) == ["x.parquet"]


def test_rejects_an_output_inside_the_input(tmp_path: Path, run: Run) -> None:
    write(tmp_path / "x.parquet")
    with pytest.raises(LatteMixError, match=r"is inside the input .*: choose another directory"):
        run(tmp_path, tmp_path / "out")


def test_finds_all_empty_texts_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = Encoder.encode

    def counted(encoder: Encoder, texts: Sequence[str], truncate: Truncate) -> Any:
        calls.append(len(texts))
        return encode(encoder, texts, truncate)

    monkeypatch.setattr(Encoder, "encode", counted)
    rows = [("a dog", " " * i) for i in range(50)]
    assert run(write(tmp_path / "x.parquet", rows), tmp_path / "out", shard_rows=50).rejected == 50
    assert calls == [100, 0]


@pytest.mark.parametrize("rejected", [False, True])
def test_command_prints_a_summary(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    rejected: bool,
) -> None:
    rows = [("a dog", "dog " * 40), ("a dog", "" if rejected else "a dog")]
    source, output = write(tmp_path / "x.parquet", rows), tmp_path / "out"
    options = ["--store", str(store.root), "--model", "tiny", "--truncate", "right"]
    monkeypatch.setattr(sys, "argv", ["lattemix", "score", str(source), str(output), *options])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == int(rejected)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        f"{output} is complete: 2 rows.",
        "Note: 1 sentences have more tokens than the model reads and were truncated.",
    ]
    rejection = f"1 of 2 rows were rejected; the first is {source}, row 2: b is empty"
    assert (rejection in lines[-1]) == rejected
