import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from model_store import LatteMixError
from training.corpus import CorpusError
from training.readers import read, read_exclusion


def sentences(path: Path, *columns: str) -> list[str]:
    return [sentence.strip() for sentence in read([path], columns)]


def test_reads_text_and_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\u2028still two\n\nthree")
    assert sentences(tmp_path / "a.txt") == ["one", "two\u2028still two", "", "three"]
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("four\nfive\n")
    assert sentences(tmp_path / "b.txt.gz") == ["four", "five"]
    both = read([tmp_path / "b.txt.gz", tmp_path / "b.txt.gz"])
    assert len(list(both)) == 4


SNLI = {
    "gold_label": "-",
    "sentence1": 'A man message "hi".',
    "sentence1_parse": "(ROOT)",
    "sentence2": "A man is asleep.",
    "pairID": "1",
}


def test_reads_snli_as_published(tmp_path: Path) -> None:
    expected = ['A man message "hi".', "A man is asleep."]
    path = tmp_path / "snli_1.0_train.jsonl"
    path.write_text(json.dumps(SNLI) + "\n\n" + json.dumps(SNLI) + "\n")
    assert sentences(path) == expected * 2
    path = tmp_path / "snli_1.0_train.txt"
    path.write_text("\t".join(SNLI) + "\n" + "\t".join(SNLI.values()) + "\n")
    assert sentences(path) == expected


def test_reads_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"a, b\nc"\n2,d\n')
    assert sentences(tmp_path / "a.csv") == ["a, b\nc", "d"]
    (tmp_path / "a.tsv").write_text('premise\thypothesis\n"a\tb\n')
    assert sentences(tmp_path / "a.tsv") == ['"a', "b"]
    assert sentences(tmp_path / "a.tsv", "hypothesis") == ["b"]
    table = pa.table({"text": ["a", None, "b"], "n": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert sentences(tmp_path / "a.parquet") == ["a", "", "b"]


def test_reads_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"one"\n{"text": "two"}\n{"text": null}\n')
    assert sentences(tmp_path / "a.jsonl") == ["one", "two", ""]


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei é\n".encode())))
    assert sentences(Path("-")) == ["eins", "zwei é"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.txt.gz", b"not gzip", "Cannot read the corpus"),
        ("a.txt.gz", gzip.compress(b"x" * 9999, mtime=0)[:-20], "Cannot read the corpus"),
        ("a.jsonl", b"{}\n", r"has the columns none, and not sentence1, .* with --column"),
        ("a.jsonl", b'{"text": "a"}\n{', "line 2 is not valid JSON"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "line 1 holds a lone surrogate"),
        ("a.jsonl", b"3\n", "line 1 is neither a string nor an object"),
        ("a.csv", b"id,words\n1,a\n", "has the columns 'id', 'words'"),
        ("a.csv", b"id,text\n1\n", "row 2 has 1 columns where the header has 2"),
        ("a.parquet", b"PAR1", "is not a Parquet file, or damaged"),
    ],
)
def test_rejects_invalid_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        sentences(tmp_path / name)


def test_rejects_missing_files_and_columns(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"Cannot read the corpus .*: No such file"):
        sentences(tmp_path / "none")
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(CorpusError, match="has the columns 'text', and not other"):
        sentences(tmp_path / "a.csv", "other")


def test_reads_sentences_to_exclude_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "STS12-en-test").mkdir()
    (tmp_path / "STS12-en-test" / "STS.input.news.txt").write_text("One two.\tThree four.\n")
    (tmp_path / "a.jsonl").write_text('{"sentence1": "Five six", "sentence2": "seven"}\n')
    sick = tmp_path / "SICK_train.txt"
    sick.write_text("pair_ID\tsentence_A\tsentence_B\n1\tEight nine\tten\n")
    exclusion = read_exclusion([tmp_path, tmp_path / "a.jsonl", sick])
    assert exclusion is not None
    for text in ("one two", "three four", "five six", "seven", "eight nine", "ten"):
        assert text in exclusion
    assert read_exclusion([]) is None


def test_rejects_paths_without_sentences_to_exclude(tmp_path: Path) -> None:
    with pytest.raises(LatteMixError, match=r"has no evaluation sets: expected files such as STS"):
        read_exclusion([tmp_path])
    (tmp_path / "empty.txt").write_text("\n...\n")
    with pytest.raises(CorpusError, match="The files of --exclude have no sentences"):
        read_exclusion([tmp_path / "empty.txt"])
    with pytest.raises(CorpusError, match=r"Cannot read the corpus .*: No such file"):
        read_exclusion([tmp_path / "none.txt"])
