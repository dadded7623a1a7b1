import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from lattemix.build.backbones import Checkpoint, open_backbone, words
from lattemix.tokenization import Tokenizer

WORDS = ["the", "dog", "runs", "sleeps", ","]
VECTORS = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


def as_text(path: Path, header: bool = False) -> Path:
    rows = [
        f"{word} " + " ".join(map(repr, row.tolist()))
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    path.write_text("\n".join((["5 8"] if header else []) + rows) + "\n")
    return path


def as_binary(path: Path, end: bytes = b"\n") -> Path:
    rows = [
        word.encode() + b" " + struct.pack("8f", *row) + end
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    path.write_bytes(b"5 8\n" + b"".join(rows))
    return path


def as_matrix(path: Path, index: str) -> Path:
    np.save(path, VECTORS)
    if index == "json":
        path.with_suffix(".json").write_text(json.dumps(WORDS))
    elif index == "txt":
        path.with_suffix(".txt").write_text("\n".join(WORDS) + "\n")
    else:
        parquet.write_table(pa.table({"index": WORDS}), path.parent / "index.parquet")
    return path


FORMATS = {
    "glove": lambda d: as_text(d / "glove.txt"),
    "word2vec text": lambda d: as_text(d / "w.vec", header=True),
    "word2vec binary": lambda d: as_binary(d / "w.bin"),
    "word2vec binary without line ends": lambda d: as_binary(d / "w.bin", b""),
    "matrix and json": lambda d: as_matrix(d / "w.npy", "json"),
    "matrix and text": lambda d: as_matrix(d / "w.npy", "txt"),
    "matrix and parquet": lambda d: as_matrix(d / "w.npy", "parquet"),
}


def encode(checkpoint: Checkpoint, text: str) -> NDArray[np.float32]:
    """The rows of the text's tokens."""
    (tokens,) = Tokenizer(checkpoint.tokenizer, 16)([text])
    rows: NDArray[np.float32] = checkpoint.tensors()[words.TABLE][tokens.ids]
    return rows


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_backbone(tmp_path: Path, name: str) -> None:
    words.save(WORDS, VECTORS, tmp_path / "reference")
    with open_backbone(str(FORMATS[name](tmp_path))) as checkpoint:
        assert checkpoint.sha256 == Checkpoint.read(tmp_path / "reference").sha256
        assert checkpoint.config["hidden_size"] == 8
        assert checkpoint.ignored_ids == [5]
        expected = np.zeros((6, 8), np.float32)
        expected[[0, 1, 2, 4, 5]] = VECTORS[[0, 1, 4, 4, 2]]
        np.testing.assert_array_equal(encode(checkpoint, "The dog, sleeping, runs"), expected)


def test_cased_vocabulary_is_not_lowercased(tmp_path: Path) -> None:
    words.save(["Dog", "dog"], VECTORS[:2], tmp_path)
    rows = encode(Checkpoint.read(tmp_path), "Dog dog DOG")
    np.testing.assert_array_equal(rows, [*VECTORS[:2], np.zeros(8)])


def test_reads_words_with_spaces_and_repeated_words(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("a 1 2\n. . . 3 4\na 5 6\n")
    words.convert(tmp_path / "w.txt", tmp_path / "out")
    checkpoint = Checkpoint.read(tmp_path / "out")
    np.testing.assert_array_equal(encode(checkpoint, "a"), [[1, 2]])
    np.testing.assert_array_equal(checkpoint.tensors()[words.TABLE], [[1, 2], [3, 4], [0, 0]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.txt", b"", "has no word vectors"),
        ("w.txt", b"a 1 2\nb 3\n", "line 2: expected a word and 2 numbers"),
        ("w.txt", b"a 1 2\nb 3 x\n", "line 2: expected a word and 2 numbers"),
        ("w.txt", b"a 1 2\nb nan 4\n", r"The vector of 'b' \(row 2\) is not finite"),
        ("w.txt", b"\x93\xff 1 2\n", "line 1 is not UTF-8 text"),
        ("w.bin", b"five words\n", "is not in word2vec's binary format"),
        ("w.bin", b"2 2\na " + struct.pack("2f", 1, 2) + b"b \x00", "ends after 1 of its 2 words"),
        ("w.kv", b"\x80\x04", "is a pickle, which can run code"),
        ("w.vec", b"2 2\na 1\n", "line 2: expected a word and 2 numbers"),
        ("w.npy", b"nonsense", "is not a matrix of numbers"),
    ],
)
def test_rejects_damaged_file(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(words.WordVectorsError, match=message):
        words.convert(tmp_path / name, tmp_path / "out")


def test_rejects_matrix_without_matching_words(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", VECTORS)
    with pytest.raises(words.WordVectorsError, match=r"no index beside it: .* to w\.txt"):
        words.convert(tmp_path / "w.npy", tmp_path / "out")
    (tmp_path / "w.txt").write_text("one\ntwo\n")
    with pytest.raises(words.WordVectorsError, match="5 vectors for 2 words"):
        words.convert(tmp_path / "w.npy", tmp_path / "out")
