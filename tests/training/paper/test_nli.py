import gzip
import json
from pathlib import Path

import pytest

from training.corpus import CorpusError
from training.exclusion import Exclusion
from training.paper.nli import NliCorpus, Pair

RECORDS = [
    {"gold_label": "neutral", "sentence1": "A man eats.", "sentence2": "He is hungry."},
    {"gold_label": "-", "sentence1": "A man eats.", "sentence2": "He sits."},
    {"gold_label": "contradiction", "sentence1": "A dog runs.", "sentence2": "A dog sleeps."},
    {"gold_label": "entailment", "sentence1": "A dog runs.", "sentence2": "An animal moves."},
]


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["snli.jsonl", "snli.jsonl.gz"])
def test_skips_pairs_without_a_gold_label(tmp_path: Path, name: str) -> None:
    corpus = NliCorpus.read(write(tmp_path / name, *RECORDS, ""))
    assert corpus.pairs == [
        Pair("A man eats.", "He is hungry.", 2),
        Pair("A dog runs.", "A dog sleeps.", 0),
        Pair("A dog runs.", "An animal moves.", 1),
    ]
    assert (corpus.unlabelled, corpus.excluded) == (1, 0)


def test_drops_and_counts_pairs_with_an_excluded_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "snli.jsonl", *RECORDS)
    corpus = NliCorpus.read(path, Exclusion(["a man eats", "AN ANIMAL MOVES"]))
    assert [pair.hypothesis for pair in corpus.pairs] == ["A dog sleeps."]
    assert corpus.excluded == 2
    assert "1 without a gold label and 2 with an evaluation sentence" in str(corpus)


def test_limit_counts_labelled_pairs(tmp_path: Path) -> None:
    corpus = NliCorpus.read(write(tmp_path / "snli.jsonl", *RECORDS), limit=2)
    assert [pair.label for pair in corpus.pairs] == [2, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (RECORDS[0] | {"gold_label": "yes"}, "has the gold_label 'yes', which is not one of contr"),
        (RECORDS[0] | {"gold_label": None}, "has the gold_label '', which is not one of"),
        ({"gold_label": "neutral", "sentence1": "A."}, "has no sentence2: expected gold_label, "),
        ('["neutral", "A.", "B."]', "is not an object."),
        ("neutral\tA.\tB.", "is not valid JSON"),
    ],
)
def test_names_the_line_of_an_invalid_record(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "snli.jsonl", RECORDS[0], line)
    with pytest.raises(CorpusError, match=r"snli\.jsonl, line 2 ") as error:
        NliCorpus.read(path)
    assert message in str(error.value)


def test_rejects_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="Cannot read the corpus"):
        NliCorpus.read(tmp_path / "snli.jsonl")
