import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from training import corpus as corpora
from training.corpus import Corpus, CorpusError, prepare
from training.readers import read


def everything(corpus: Corpus) -> list[str]:
    return [sentence for index in range(corpus.shards) for sentence in corpus.shard(index)]


def test_sentences_are_distinct_shuffled_and_in_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SHARD_SENTENCES", 64)
    lines = ["same", " same ", "", "two  words", "two words", *map(str, range(1000))]
    corpus = prepare(lines, tmp_path)
    found = everything(corpus)
    assert corpus.sentences == len(found) == 1002
    assert set(found) == {"same", "two words", *map(str, range(1000))}
    assert [len(corpus.shard(i)) for i in range(corpus.shards)] == [64] * 15 + [42]
    numbers = [int(s) for s in found if s.isdigit()]
    assert abs(np.corrcoef(numbers, range(1000))[0, 1]) < 0.1
    assert corpus.head(100) == found[:100]
    assert Corpus.open(tmp_path) == corpus
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


def test_the_order_of_the_lines_does_not_matter_but_their_text_does(tmp_path: Path) -> None:
    lines = [f"sentence {i}" for i in range(500)]
    first = prepare(lines, tmp_path / "a")
    assert prepare(lines[::-1] * 2, tmp_path / "b").sha256 == first.sha256
    assert everything(Corpus.open(tmp_path / "b")) == everything(first)
    assert prepare([*lines[:-1], "other"], tmp_path / "c").sha256 != first.sha256


def test_a_sample_is_as_likely_to_hold_one_sentence_as_another(tmp_path: Path) -> None:
    kept = prepare(map(str, range(20_000)), tmp_path, most=6_000)
    numbers = [int(sentence) for sentence in everything(kept)]
    tenths, _ = np.histogram(numbers, 10, (0, 20_000))
    assert tenths.sum() == 6_000
    assert abs(tenths / 2_000 - 0.3).max() < 0.04


def test_a_corpus_that_was_not_finished_is_not_opened(tmp_path: Path) -> None:
    def broken():
        yield from map(str, range(10))
        raise CorpusError("cut short")

    prepare(["an", "older", "one"], tmp_path)
    with pytest.raises(CorpusError, match="cut short"):
        prepare(broken(), tmp_path)
    assert Corpus.open(tmp_path) is None


@pytest.mark.parametrize(
    ("lines", "says"),
    [([], "holds no sentences"), (["\n", " "], "holds no sentences"), (["a", "a"], "one sentence")],
)
def test_too_little_to_train_on(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(CorpusError, match=says):
        prepare(lines, tmp_path)


def found(path: Path, *columns: str) -> list[str]:
    return [sentence.strip() for sentence in read([path], columns)]


def test_plain_text_and_its_compressed_kind(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\u2028still two\n\nthree")
    assert found(tmp_path / "a.txt") == ["one", "two\u2028still two", "", "three"]
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("four\nfive\n")
    assert found(tmp_path / "b.txt.gz") == ["four", "five"]
    both = read([tmp_path / "b.txt.gz", tmp_path / "b.txt.gz"])
    assert len(list(both)) == 4


SNLI = {
    "gold_label": "-",
    "sentence1": 'A man says "hi".',
    "sentence1_parse": "(ROOT)",
    "sentence2": "A man is asleep.",
    "pairID": "1",
}


def test_snli_and_multinli_as_they_are_published(tmp_path: Path) -> None:
    expected = ['A man says "hi".', "A man is asleep."]
    path = tmp_path / "snli_1.0_train.jsonl"
    path.write_text(json.dumps(SNLI) + "\n\n" + json.dumps(SNLI) + "\n")
    assert found(path) == expected * 2
    path = tmp_path / "snli_1.0_train.txt"
    path.write_text("\t".join(SNLI) + "\n" + "\t".join(SNLI.values()) + "\n")
    assert found(path) == expected


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"a, b\nc"\n2,d\n')
    assert found(tmp_path / "a.csv") == ["a, b\nc", "d"]
    (tmp_path / "a.tsv").write_text('premise\thypothesis\n"a\tb\n')
    assert found(tmp_path / "a.tsv") == ['"a', "b"]
    assert found(tmp_path / "a.tsv", "hypothesis") == ["b"]
    table = pa.table({"text": ["a", None, "b"], "n": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert found(tmp_path / "a.parquet") == ["a", "", "b"]


def test_json_lines_of_plain_strings(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"one"\n{"text": "two"}\n{"text": null}\n')
    assert found(tmp_path / "a.jsonl") == ["one", "two", ""]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei é\n".encode())))
    assert found(Path("-")) == ["eins", "zwei é"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.txt.gz", b"not gzip", "Cannot read the corpus"),
        ("a.txt.gz", gzip.compress(b"x" * 9999)[:-20], "Cannot read the corpus"),
        ("a.jsonl", b"{}\n", r"has the columns none, and not sentence1, .* with --column"),
        ("a.jsonl", b'{"text": "a"}\n{', "line 2 is not valid JSON"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "line 1 holds a lone surrogate"),
        ("a.jsonl", b"3\n", "line 1 is neither a text nor an object"),
        ("a.csv", b"id,words\n1,a\n", "has the columns 'id', 'words'"),
        ("a.csv", b"id,text\n1\n", "row 2 has 1 columns where the header has 2"),
        ("a.parquet", b"PAR1", "is not a Parquet file, or damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=says):
        found(tmp_path / name)


def test_a_file_or_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"Cannot read the corpus .*: No such file"):
        found(tmp_path / "none")
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(CorpusError, match="has the columns 'text', and not other"):
        found(tmp_path / "a.csv", "other")
