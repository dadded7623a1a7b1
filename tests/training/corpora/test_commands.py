from pathlib import Path

import pytest

from tests.training.conftest import Run
from tests.training.corpora.test_snli import JSON
from training.corpora.commands import write

WORDNET = '0001 03 n 01 dog 0 000 | a member of a genus; "the dog barked all night"\n' * 2


def test_writes_distinct_sentences(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.noun").write_text(WORDNET)
    out = tmp_path / "wordnet.txt"
    assert run("corpus", "wordnet", tmp_path, "--out", out) == 0
    assert out.read_text() == "a member of a genus\nthe dog barked all night\n"
    assert capsys.readouterr().err == f"Wrote 2 distinct sentences to {out}.\n"


def test_writes_the_first_pairs_of_snli(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "snli_1.0_train.jsonl", tmp_path / "snli.txt"
    source.write_text(JSON)
    assert run("corpus", "snli", source, "--out", out) == 0
    assert out.read_text() == "A man eats.\nA man is hungry.\nNobody eats.\n"
    assert run("corpus", "snli", source, "--pairs", 1, "--out", out) == 0
    assert out.read_text() == "A man eats.\nA man is hungry.\n"


def test_says_where_to_get_a_missing_source(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    message = str(run("corpus", "snli", "--out", out))
    assert message.startswith("lattemix-train: SOURCE is missing: download SNLI from https://nlp.")
    message = str(run("corpus", "wordnet", tmp_path, "--out", out))
    assert "is not a WordNet directory" in message
    assert "wordnet-base" in message
    assert "No such file" in str(run("corpus", "wikipedia", tmp_path / "none", "--out", out))
    assert list(tmp_path.iterdir()) == []


def test_failure_keeps_the_previous_file(tmp_path: Path) -> None:
    def broken():
        yield "one"
        raise OSError("disk error")

    out = tmp_path / "out.txt"
    write(["two  words", "\n", "two words"], out)
    with pytest.raises(OSError, match="disk error"):
        write(broken(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert out.read_text() == "two words\n"
