"""Skip-Gram vectors of lemmas from a SQLite database, extended to inflected forms."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow

from lattemix.build.backbones import BackboneError, words

# Parts of speech: of two lemmas with the same form, the first one's is taken.
_IRREGULAR = ("noun", "verb", "adj", "adv")  # "leaves" is of "leaf"
_SIBILANTS = ("s", "x", "z", "ch", "sh")


def convert_skip_gram(database: Path, wordnet: Path, directory: Path) -> None:
    """Write the vectors of `database` as a backbone; an inflected form has its lemma's vector.

    Args:
        database: tables `meta` (vector_size) and `vectors` (word, float32 compressed with zstd).
        wordnet: directory of WordNet's index.* and *.exc files.
        directory: directory to write the backbone to.
    """
    lemmas, vectors = read_database(database)
    rows = {lemma: row for row, lemma in enumerate(lemmas)}
    forms = inflected_forms(rows, wordnet)
    copies = [rows[lemma] for lemma in forms.values()]
    words.save([*lemmas, *forms], np.concatenate([vectors, vectors[copies]]), directory)


def read_database(database: Path) -> words.WordVectors:
    """Return the words of the database and their vectors."""
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            query = "SELECT value FROM meta WHERE key = 'vector_size'"
            ((size,),) = connection.execute(query).fetchall()
            query = "SELECT word, embedding FROM vectors ORDER BY rowid"
            lemmas, blobs = zip(*connection.execute(query), strict=True)
        except (sqlite3.DatabaseError, ValueError) as error:
            raise BackboneError(f"{database} is not a database of vectors: {error}.") from error
    values = [pyarrow.decompress(blob, 4 * size, codec="zstd", asbytes=True) for blob in blobs]
    return list(lemmas), np.frombuffer(b"".join(values), "<f4").reshape(-1, size)


def inflected_forms(lemmas: Mapping[str, object], wordnet: Path) -> dict[str, str]:
    """Map the inflected forms of `lemmas` that are not lemmas themselves to their lemma.

    Irregular forms are WordNet's; regular ones follow its rules for the part of speech.
    """
    forms: dict[str, str] = {}
    for part in _IRREGULAR:
        for form, *candidates in _lines(wordnet / f"{part}.exc"):
            known = [lemma for lemma in candidates if lemma in lemmas]
            if form not in lemmas and known:
                forms.setdefault(form, known[0])
    for part, inflect in _REGULAR.items():
        listed = {lemma for lemma, *_ in _lines(wordnet / f"index.{part}")}
        # "e" first: "hoping" is of "hope"; "hop" doubles its consonant, and is irregular.
        for lemma in sorted(listed & lemmas.keys(), key=lambda word: (word[-1] != "e", word)):
            for form in inflect(lemma):
                if form not in lemmas:
                    forms.setdefault(form, lemma)
    return forms


def _noun(lemma: str) -> Iterator[str]:
    yield from _with_s(lemma)
    if lemma.endswith("man"):
        yield lemma[:-2] + "en"


def _verb(lemma: str) -> Iterator[str]:
    yield from _with_s(lemma)
    yield _stem(lemma) + "ed"
    yield (lemma[:-1] if lemma.endswith("e") and not lemma.endswith("ee") else lemma) + "ing"


def _adjective(lemma: str) -> Iterator[str]:
    yield _stem(lemma) + "er"
    yield _stem(lemma) + "est"


_REGULAR: dict[str, Callable[[str], Iterator[str]]] = {
    "verb": _verb,  # "does" is of "do"
    "noun": _noun,
    "adj": _adjective,
}


def _with_s(lemma: str) -> Iterator[str]:
    if lemma.endswith((*_SIBILANTS, "o")):
        yield lemma + "es"
    if not lemma.endswith(_SIBILANTS):
        yield lemma[:-1] + "ies" if _ends_in_y(lemma) else lemma + "s"


def _stem(lemma: str) -> str:
    """Return what -ed, -er and -est are added to: bake -> bak, carry -> carri."""
    if lemma.endswith("e"):
        return lemma[:-1]
    return lemma[:-1] + "i" if _ends_in_y(lemma) else lemma


def _ends_in_y(lemma: str) -> bool:
    return lemma.endswith("y") and lemma[-2:-1] not in ("", *"aeiou")


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the columns of a file of WordNet; the lines of the licence are indented."""
    if not path.is_file():
        raise BackboneError(
            f"{path} is missing: pass the directory of WordNet with --wordnet. Debian's "
            "wordnet-base installs one in /usr/share/wordnet; https://wordnet.princeton.edu has "
            "it, too."
        )
    with path.open(encoding="latin-1") as file:
        yield from (line.split() for line in file if line.strip() and not line.startswith(" "))
