"""`dedup_files` from end to end: what is kept, and what is reported."""

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from pyarrow import parquet

from lattemix.bulk.dedup.vectors import VectorModel
from lattemix.bulk.runners import LocalRunner
from lattemix.encoder import Encoder
from lattemix.settings import ModelSettings
from model_store import LatteMixError, Store
from tests.lattemix.bulk.dedup.conftest import (
    Run,
    duplicated_texts,
    files_below,
    random_texts,
    variant,
    write_lines,
)

BASE = random_texts(12, seed=5)  # no two of them are similar


def kept_lines(output: Path) -> list[str]:
    return (output / "kept.txt").read_text().splitlines()


def dropped_rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "dropped.jsonl").open()]


def scores_of(store: Store, texts: list[str]) -> tuple[Any, list[int]]:
    """Return the scores of all pairs of texts, and the indices of those that are rejected."""
    model = VectorModel(Encoder(store.open("static"), provider="cpu"), "centred", "window")
    encoded = model.encode(texts)
    return encoded.vectors @ encoded.vectors.T, [*encoded.reasons]


def test_keeps_what_a_comparison_of_all_pairs_keeps(
    tmp_path: Path, run: Run, static_store: Store
) -> None:
    texts = duplicated_texts(150)
    scores, rejected = scores_of(static_store, texts)
    kept: list[int] = []
    for i, text in enumerate(texts):
        compared = [] if i in rejected else [j for j in kept if j not in rejected]
        if all(texts[j] != text and scores[i, j] < 0.9 for j in compared):
            kept.append(i)
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out")
    assert kept_lines(tmp_path / "out") == [texts[i] for i in kept]
    assert (summary.rows, summary.kept) == (len(texts), len(kept))
    rows = dropped_rows(tmp_path / "out")
    assert [row["row"] - 1 for row in rows] == sorted({*range(len(texts))} - {*kept})
    for row in rows:
        index, keeper = row["row"] - 1, row["kept_row"] - 1
        assert (row["text"], row["kept_text"]) == (texts[index], texts[keeper])
        assert keeper in kept
        assert row["score"] == pytest.approx(scores[index, keeper], abs=1e-6)
        assert row["score"] >= 0.9
        assert row["model"] == "static:fp32"
    identical = sum(row["text"] == row["kept_text"] for row in rows)
    assert (summary.identical, summary.similar) == (identical, len(rows) - identical)
    assert summary.not_compared == len(rejected) == 4


def test_the_summary_is_written_beside_the_rows(tmp_path: Path, run: Run) -> None:
    summary = run(write_lines(tmp_path / "x.txt", duplicated_texts()), tmp_path / "out")
    assert {*files_below(tmp_path / "out")} == {"kept.txt", "dropped.jsonl", "summary.json"}
    assert json.loads((tmp_path / "out/summary.json").read_text()) == json.loads(
        summary.model_dump_json()
    )


POOL = [
    *BASE[:3],
    *(variant(t, n) for t in BASE[:3] for n in (1, 2)),
    "",
    " ",
    "!?",
    "…",
    "éà",
    "a",
]


@pytest.mark.parametrize("linkage", ["keeper", "complete"])
@given(texts=st.lists(st.sampled_from(POOL), min_size=1, max_size=30))
@hypothesis_settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_loses_no_row(
    tmp_path_factory: pytest.TempPathFactory, run: Run, linkage: str, texts: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    summary = run(write_lines(directory / "x.txt", texts), directory / "out", linkage=linkage)
    kept, dropped = kept_lines(directory / "out"), dropped_rows(directory / "out")
    assert sorted(kept + [row["text"] for row in dropped]) == sorted(texts)
    assert summary.rows == len(texts) == summary.kept + summary.identical + summary.similar
    assert summary.kept == len(kept)
    incomparable = ["", " ", "!?", "…", "éà"]  # no known words
    assert summary.not_compared == sum(text in incomparable for text in texts)
    assert not {row["text"] for row in dropped} & {*incomparable}
    assert all(row["kept_text"] in kept for row in dropped)


def test_keeps_all_rows_that_cannot_be_compared(tmp_path: Path, run: Run) -> None:
    texts = ["", "...", "", "...", "!?"]
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out")
    assert kept_lines(tmp_path / "out") == texts
    assert (summary.kept, summary.not_compared, summary.candidates) == (5, 5, 0)
    assert "is empty" in summary.first_not_compared
    assert dropped_rows(tmp_path / "out") == []


def test_compares_crowded_texts_until_one_is_kept(tmp_path: Path, run: Run) -> None:
    texts = [variant(BASE[0], n) for n in range(100)] + BASE
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out")
    assert kept_lines(tmp_path / "out") == [texts[0], *BASE[1:]]
    assert summary.group_sizes == {101: 1}


def test_a_text_that_is_similar_to_a_dropped_one_only_is_kept(
    tmp_path: Path, run: Run, static_store: Store
) -> None:
    chain = [BASE[0], f"{BASE[0]} sea ball sea", f"{BASE[0]} sea ball sea sea ball sea ball ball"]
    scores, _ = scores_of(static_store, chain)
    near, far = min(scores[0, 1], scores[1, 2]), scores[0, 2]
    assert far < near, "else this test proves nothing"
    source = write_lines(tmp_path / "x.txt", chain)
    threshold = float(far + near) / 2
    run(source, tmp_path / "out", threshold=threshold)
    assert kept_lines(tmp_path / "out") == [chain[0], chain[2]]
    run(source, tmp_path / "middle", threshold=threshold, keep="longest")
    assert kept_lines(tmp_path / "middle") == [chain[0], chain[2]]


# Keep rules


def write_csv(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("text,likes\n" + "".join(f"{text},{number}\n" for text, number in rows))
    return path


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("first", [0, 3]),
        ("longest", [2, 3]),
        ("shortest", [0, 3]),
        ("max:likes", [1, 4]),
    ],
)
def test_keeps_by_the_rule(tmp_path: Path, run: Run, keep: str, kept: list[int]) -> None:
    rows = [
        *[(BASE[0], ""), (variant(BASE[0]), "-1e3"), (f"{BASE[0]} !!!", "-2000")],
        *[(BASE[1], "1"), (variant(BASE[1]), "10"), (variant(BASE[1], 2), "10")],
    ]
    source = write_csv(tmp_path / "x.csv", rows)
    run(source, tmp_path / "out", keep=keep)
    lines = source.read_text().splitlines(keepends=True)
    expected = lines[0] + "".join(lines[1 + index] for index in kept)
    assert (tmp_path / "out/kept.csv").read_text() == expected


def test_keeps_the_identical_row_with_the_largest_number(tmp_path: Path, run: Run) -> None:
    rows = [(BASE[0], "1"), (variant(BASE[0]), "2"), (BASE[0], "3"), (BASE[0], "3")]
    run(write_csv(tmp_path / "x.csv", rows), tmp_path / "out", keep="max:likes")
    assert (tmp_path / "out/kept.csv").read_text() == f"text,likes\n{BASE[0]},3\n"
    dropped = (tmp_path / "out/dropped.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in dropped] == ["1", "2", "4"]
    assert [line.split(",")[4] for line in dropped] == ["3", "3", "3"]


def test_keeps_by_a_column_of_numbers_in_parquet_and_json(tmp_path: Path, run: Run) -> None:
    texts, numbers = [BASE[0], variant(BASE[0]), variant(BASE[0], 2)], [None, 2.5, 2]
    parquet.write_table(pyarrow.table({"text": texts, "n": numbers}), tmp_path / "x.parquet")
    run(tmp_path / "x.parquet", tmp_path / "a", keep="max:n")
    assert parquet.read_table(tmp_path / "a/kept.parquet")["text"].to_pylist() == [texts[1]]
    rows = [{"text": text, "n": n} for text, n in zip(texts, numbers, strict=True)]
    write_lines(tmp_path / "x.jsonl", [json.dumps(row) for row in rows])
    run(tmp_path / "x.jsonl", tmp_path / "b", keep="max:n")
    assert json.loads((tmp_path / "b/kept.jsonl").read_text()) == rows[1]


def test_names_the_row_whose_number_is_none(tmp_path: Path, run: Run) -> None:
    source = write_csv(tmp_path / "x.csv", [(BASE[0], "1"), (BASE[1], "many")])
    message = r"x\.csv, row 2: column likes is 'many', not a number\.$"
    with pytest.raises(LatteMixError, match=message):
        run(source, tmp_path / "out", keep="max:likes")
    assert not (tmp_path / "out").exists()
    assert run(source, tmp_path / "out").kept == 2, "the work directory is of use"


# Other files to compare against


@pytest.fixture
def against(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "old.txt", [BASE[0], variant(BASE[0], 3), BASE[1], "!?"])


def test_drops_what_other_files_have(tmp_path: Path, run: Run, against: Path) -> None:
    texts = [variant(BASE[0]), BASE[0], BASE[2], BASE[1], variant(BASE[2]), "!?", BASE[2]]
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out", against=against)
    assert kept_lines(tmp_path / "out") == [BASE[2], "!?"]
    places = [(r["row"], r["kept_file"], r["kept_row"]) for r in dropped_rows(tmp_path / "out")]
    assert places == [
        *[(1, "old.txt", 1), (2, "old.txt", 1), (4, "old.txt", 3)],
        *[(5, "x.txt", 3), (7, "x.txt", 3)],
    ]
    assert (summary.rows, summary.kept, summary.identical, summary.similar) == (7, 2, 3, 2)
    assert summary.not_compared == 1


def test_drops_only_what_other_files_have(tmp_path: Path, run: Run, against: Path) -> None:
    texts = [variant(BASE[0]), BASE[0], BASE[2], BASE[1], variant(BASE[2]), "!?", BASE[2]]
    source = write_lines(tmp_path / "x.txt", texts)
    summary = run(source, tmp_path / "out", against=against, against_only=True)
    assert kept_lines(tmp_path / "out") == [BASE[2], variant(BASE[2]), "!?", BASE[2]]
    assert [row["row"] for row in dropped_rows(tmp_path / "out")] == [1, 2, 4]
    assert (summary.kept, summary.identical, summary.similar) == (4, 2, 1)


@pytest.mark.parametrize("keep", ["longest", "max:likes"])
def test_rows_to_compare_against_are_kept_whatever_the_rule(
    tmp_path: Path, run: Run, against: Path, keep: str
) -> None:
    rows = [(f"{BASE[0]} ......", "1e999"), (BASE[3], "0")]
    source = write_csv(tmp_path / "x.csv", rows)
    run(source, tmp_path / "out", against=against, keep=keep)
    assert (tmp_path / "out/kept.csv").read_text() == f"text,likes\n{BASE[3]},0\n"


def test_other_files_may_be_a_directory_of_another_type(tmp_path: Path, run: Run) -> None:
    (tmp_path / "old/a").mkdir(parents=True)
    write_lines(tmp_path / "old/a/x.jsonl", [json.dumps({"text": BASE[0]})])
    parquet.write_table(pyarrow.table({"text": [BASE[1]]}), tmp_path / "old/y.parquet")
    source = write_lines(tmp_path / "x.txt", [variant(text) for text in BASE[:3]])
    run(source, tmp_path / "out", against=tmp_path / "old")
    assert kept_lines(tmp_path / "out") == [variant(BASE[2])]


@pytest.mark.parametrize("only", [False, True])
def test_drops_crowded_rows_that_other_files_have(
    tmp_path: Path, run: Run, static_store: Store, only: bool
) -> None:
    """Each row has more matches in its own file than the limit, and so has each of the others."""
    near = f"{BASE[0]} sea"
    scores, _ = scores_of(static_store, [BASE[0], near, *BASE[1:]])
    threshold = float(scores[0, 1]) - 0.001
    assert (scores[:2, 2:] < threshold).all()
    old = write_lines(tmp_path / "old.txt", [variant(BASE[0], n) for n in range(40)])
    source = write_lines(tmp_path / "x.txt", [f"{near}{'.' * n}" for n in range(40)])
    run(source, tmp_path / "out", against=old, against_only=only, threshold=threshold)
    assert kept_lines(tmp_path / "out") == []


# Two models


def test_the_mean_of_both_models_scores_decides(tmp_path: Path, run: Run, two_models: Any) -> None:
    texts = duplicated_texts(60)
    store = Store(two_models.store)
    models = [
        VectorModel(Encoder(store.open(name), provider="cpu"), "centred", "window")
        for name in ("static", "tiny")
    ]
    source = write_lines(tmp_path / "x.txt", texts)
    summary = run(source, tmp_path / "out", rescore="tiny", threshold=0.9)
    alone = run(source, tmp_path / "alone", threshold=0.9)
    rows = dropped_rows(tmp_path / "out")
    assert summary.rescored_by
    assert summary.rescored_by.model == "tiny:fp32"
    assert summary.candidates_by.model == "static:fp32"
    assert summary.floor == pytest.approx(2 * 0.9 - 1), "no pair below can have such a mean"
    assert alone.kept < summary.kept < summary.rows
    different = [row for row in rows if row["text"] != row["kept_text"]]
    scores = np.zeros(len(different))
    for model in models:
        sides = (model.encode([row[key] for row in different]) for key in ("text", "kept_text"))
        scores += np.vecdot(*(side.vectors for side in sides)) / 2
    np.testing.assert_allclose([row["score"] for row in different], scores, atol=1e-6)
    assert scores.min() >= 0.9 - 1e-6
    assert {row["model"] for row in rows} == {"static:fp32+tiny:fp32"}


def test_pairs_that_the_second_model_rejects_count_as_different(
    tmp_path: Path, run: Run, model_settings: ModelSettings
) -> None:
    long = " ".join([BASE[0]] * 3)  # 24 words: too long for `tiny`
    source = write_lines(tmp_path / "x.txt", [BASE[0], long, BASE[1], variant(BASE[1])])
    assert run(source, tmp_path / "alone").kept == 2
    runner = LocalRunner(model_settings.model_copy(update={"truncate": "error"}))
    options = {"rescore": "tiny", "threshold": -1, "floor": 0.99, "runner": runner}
    summary = run(source, tmp_path / "out", **options)
    assert kept_lines(tmp_path / "out") == [BASE[0], long, BASE[1]]
    assert (summary.kept, summary.candidates, summary.not_rescored) == (3, 1, 1)
    assert "x.txt, row 2" in summary.first_not_rescored
    assert "more than the limit of 16" in summary.first_not_rescored
