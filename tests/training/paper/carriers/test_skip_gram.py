import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import tokenizers

from lattemix.build.backbones import BackboneError, open_backbone
from training.paper.carriers.skip_gram import convert_skip_gram, inflected_forms

LEMMAS = ["do", "doe", "hope", "hop", "leaf", "leave", "carry", "watch", "thing", "happy", "woman"]
FILES = {
    "noun.exc": "leaves leaf\nwomen woman\n",
    "verb.exc": "hopping hop\ndid do\nthing do\n",
    "adj.exc": "",
    "adv.exc": "",
    "index.noun": "  1 This is a licence\ndoe n 1\nhope n 1\nleaf n 1\nthing n 1\nwoman n 1\n",
    "index.verb": "do v 1\nhope v 1\nhop v 1\nleave v 1\ncarry v 1\nwatch v 1\nfly v 1\n",
    "index.adj": "happy a 1\n",
}


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER)")
        connection.execute("CREATE TABLE vectors (word TEXT PRIMARY KEY, embedding BLOB)")
        connection.execute("INSERT INTO meta VALUES ('vector_size', 4)")
        for row, word in enumerate(LEMMAS):
            vector = np.full(4, row + 1, "<f4").tobytes()
            blob = pyarrow.compress(vector, codec="zstd", asbytes=True)
            connection.execute("INSERT INTO vectors VALUES (?, ?)", (word, blob))
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("form", "lemma"),
    [
        ("does", "do"),  # also the plural of "doe"
        ("did", "do"),
        ("hoping", "hope"),  # "hop" doubles its consonant
        ("hopping", "hop"),
        ("leaves", "leaf"),  # irregular before regular
        ("carries", "carry"),
        ("carried", "carry"),
        ("watches", "watch"),
        ("happiest", "happy"),
        ("women", "woman"),
    ],
)
def test_maps_inflected_forms_to_lemmas(wordnet: Path, form: str, lemma: str) -> None:
    assert inflected_forms(dict.fromkeys(LEMMAS), wordnet)[form] == lemma


def test_keeps_lemmas_and_ignores_unknown_ones(wordnet: Path) -> None:
    forms = inflected_forms(dict.fromkeys(LEMMAS), wordnet)
    assert not forms.keys() & set(LEMMAS)  # "thing" has a vector of its own
    assert "flying" not in forms


def test_inflected_form_has_the_vector_of_its_lemma(database: Path, wordnet: Path) -> None:
    convert_skip_gram(database, wordnet, wordnet / "out")
    with open_backbone(str(wordnet / "out")) as checkpoint:
        table = checkpoint.tensors()["embeddings"]
        tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer))
        ids = tokenizer.encode("Women carried UNSEEN").ids
        assert table[ids].mean(axis=1).tolist() == [11, 7, 0]
        assert ids[2] in checkpoint.ignored_ids


def test_names_the_missing_wordnet_file(wordnet: Path) -> None:
    (wordnet / "verb.exc").unlink()
    with pytest.raises(BackboneError, match=r"verb\.exc is missing.*--wordnet"):
        inflected_forms(dict.fromkeys(LEMMAS), wordnet)


def test_rejects_another_database(tmp_path: Path, wordnet: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, though it is longer than a header of SQLite " * 3)
    with pytest.raises(BackboneError, match="not a database of vectors"):
        convert_skip_gram(path, wordnet, tmp_path / "out")
