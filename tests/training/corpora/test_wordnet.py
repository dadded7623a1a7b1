from pathlib import Path

import pytest

from training.corpora.wordnet import sentences
from training.corpus import CorpusError

NOUNS = """\
  1 This software and database is being provided | under a licence of many words
00001740 03 n 01 entity 0 001 ~ 00001930 n 0000 | that which is perceived to exist
00002137 03 n 01 haste 0 000 | overly eager speed; "in haste he forgot his book"; "haste!"
"""
VERBS = (
    '00003000 29 v 01 able 0 000 | be (usually followed by `to\'); "we were able to buy a car"\n'
)


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    (tmp_path / "data.noun").write_text(NOUNS, encoding="latin-1")
    (tmp_path / "data.verb").write_text(VERBS, encoding="latin-1")
    return tmp_path


def test_yields_definitions_and_examples_of_four_words_or_more(wordnet: Path) -> None:
    assert list(sentences(wordnet)) == [
        "that which is perceived to exist",
        "in haste he forgot his book",
        "be (usually followed by `to')",
        "we were able to buy a car",
    ]


def test_rejects_a_directory_without_wordnet(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="is not a WordNet directory"):
        list(sentences(tmp_path))
