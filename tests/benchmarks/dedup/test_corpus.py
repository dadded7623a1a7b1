import gzip
from pathlib import Path

from benchmarks.dedup import corpus
from benchmarks.dedup.plant import Planted


def test_texts_of_the_same_words_are_one() -> None:
    sources = {"a": iter(["One two three.", "three TWO, one"]), "b": iter(["Four five six."] * 2)}
    sentences, counts = corpus.distinct(sources, 10)
    assert sentences == ["One two three.", "Four five six."]
    assert counts == {"a": 1, "b": 1}


def test_limit() -> None:
    assert corpus.distinct({"a": iter(["x y z", "a b c"])}, 1)[0] == ["x y z"]


def test_wikitext_spacing(tmp_path: Path) -> None:
    path = tmp_path / "wikitext.txt"
    path.write_text(" = Title of it = \n The game 's role @-@ play ( fun ) , was released .\n")
    assert list(corpus.wikitext_sentences(path)) == [
        "Title of it",
        "The game's role-play (fun), was released.",
    ]


def test_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "gcide.dict.dz"
    entry = (
        'Affect \\Af*fect"\\, v. t. [L. affectus.]\n'
        "   1. To act upon; to produce an\n      effect or change upon.\n      [1913 Webster]\n\n"
        "            The climate affected their health. --Macaulay.\n      [1913 Webster]\n"
    )
    path.write_bytes(gzip.compress(entry.encode()))
    assert list(corpus.dictionary_sentences(path)) == [
        "To act upon",
        "to produce an effect or change upon.",
        "The climate affected their health.",
    ]


def test_split_rejects_remains_of_markup_and_extreme_lengths() -> None:
    assert list(corpus.split(["* A list item. Too short", "see [[a link there", "w " * 61])) == [
        "A list item."
    ]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    texts, planted = ["Ünï", 'a "b"  c'], [Planted(1, 0, "case")]
    corpus.write(tmp_path, texts, planted)
    assert corpus.read(tmp_path) == (texts, planted)
