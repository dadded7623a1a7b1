"""Convert files of word vectors to backbone directories."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tokenizers
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers

from lattemix.build.backbones.checkpoint import CONFIG, SAFETENSORS
from model_store import LatteMixError
from model_store.manifest import TOKENIZER

TABLE = "embeddings"  # name of the tensor [V, H]: a row per token, zeros if it is ignored
UNKNOWN = "[UNK]"
_PICKLES = (".kv", ".model", ".pkl", ".pickle")
SUFFIXES = (".txt", ".vec", ".bin", ".npy", *_PICKLES)

WordVectors = tuple[list[str], NDArray[np.float32]]  # V words, [V, H]


class WordVectorsError(LatteMixError):
    """A file of word vectors cannot be read."""


def convert(path: Path, directory: Path) -> None:
    """Convert a file of word vectors to a backbone directory."""
    save(*read(path), directory)


def read(path: Path) -> WordVectors:
    """Read a file of word vectors.

    `.bin` is word2vec's binary format; `.npy` a matrix with an index of its words beside it; any
    other suffix is text, as of GloVe or, with a header line, word2vec.
    """
    if path.suffix in _PICKLES:
        raise WordVectorsError(
            f"{path} is a pickle, which can run code when loaded: if you trust it, convert it with "
            "gensim, `KeyedVectors.load(FILE).save_word2vec_format('FILE.bin', binary=True)`."
        )
    readers = {".bin": _read_binary, ".npy": _read_matrix}
    return readers.get(path.suffix, _read_text)(path)


def save(
    words: Sequence[str],
    vectors: NDArray[np.float32],
    directory: Path,
    lowercase: bool | None = None,
) -> None:
    """Write word vectors as a backbone directory, deterministically.

    Texts are lower-cased if no word has an upper-case letter, unless `lowercase` says otherwise.
    For gensim's KeyedVectors: `save(kv.index_to_key, kv.vectors, directory)`.
    """
    if len(words) != len(vectors) or not len(words):
        raise WordVectorsError(f"There are {len(vectors):,} vectors for {len(words):,} words.")
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise WordVectorsError(f"The vector of {words[row]!r} (row {row + 1:,}) is not finite.")
    first_rows = {word: row for row, word in reversed(list(enumerate(words)))}
    rows = sorted(first_rows.values())  # a repeated word keeps its first vector
    vocabulary = {words[row]: token_id for token_id, row in enumerate(rows)}
    unknown_id = vocabulary[UNKNOWN] = len(rows)
    hidden_size = vectors.shape[1]
    table = np.concatenate([vectors[rows], np.zeros((1, hidden_size))]).astype(np.float32)
    if lowercase is None:
        lowercase = not any(character.isupper() for word in words for character in word)

    tokenizer = _tokenizer(vocabulary, lowercase)
    write(table, tokenizer, directory, ignored_ids=[unknown_id], lowercase=lowercase)


def write(
    table: NDArray[np.float32], tokenizer: tokenizers.Tokenizer, directory: Path, **config: Any
) -> None:
    """Write a table [V, H] and the tokenizer of its rows as a backbone directory.

    `config` is added to `config.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / TOKENIZER), pretty=False)
    size, hidden_size = table.shape
    config = {"model_type": "static", "hidden_size": hidden_size, "vocab_size": size, **config}
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")
    save_file({TABLE: table}, directory / SAFETENSORS)


def _tokenizer(vocabulary: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # runs of letters, runs of punctuation
    return tokenizer


def _read_text(path: Path) -> WordVectors:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    size = 0
    with path.open("rb") as file:
        for number, line in enumerate(_decoded(file, path), start=1):
            word, values = _split(line, size)
            if number == 1 and len(values) == 1:
                size = int(values[0])  # word2vec's header: number of words, size of vectors
                continue
            size = size or len(values)
            if len(values) != size or not size or not word:
                raise WordVectorsError(
                    f"{path}, line {number:,}: expected a word and {size or 'some'} numbers."
                )
            words.append(word)
            rows.append(values)
    if not words:
        raise WordVectorsError(f"{path} has no word vectors.")
    return words, np.stack(rows)


def _decoded(file: BinaryIO, path: Path) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n ")
        except UnicodeDecodeError:
            raise WordVectorsError(
                f"{path}, line {number:,} is not UTF-8 text: a file in word2vec's binary format "
                "must end in .bin."
            ) from None


def _split(line: str, size: int) -> tuple[str, NDArray[np.float32]]:
    """Split a line into a word, which may contain spaces, and the numbers after it."""
    columns = line.split(" ")
    start = len(columns) - size if size else 1
    try:
        values = np.array(columns[start:], dtype=np.float32)
    except ValueError:
        values = np.zeros(0, np.float32)
    return " ".join(columns[:start]), values


def _read_binary(path: Path) -> WordVectors:
    with path.open("rb") as file:
        try:
            count, size = map(int, file.readline(64).split())
        except ValueError:
            raise WordVectorsError(
                f"{path} is not in word2vec's binary format: it does not start with two numbers."
            ) from None
        words: list[str] = []
        vectors = np.empty((count, size), np.float32)
        for row in range(count):
            words.append(_word(file))
            values = file.read(4 * size)
            if len(values) < 4 * size:
                raise WordVectorsError(f"{path} ends after {row:,} of its {count:,} words.")
            vectors[row] = np.frombuffer(values, np.float32)
    return words, vectors


def _word(file: BinaryIO) -> str:
    """Read up to the next space; some writers put a newline before the word."""
    letters = bytearray()
    while (letter := file.read(1)) not in (b" ", b""):
        letters += letter
    return letters.decode("utf-8", errors="replace").lstrip("\n")


def _read_matrix(path: Path) -> WordVectors:
    try:
        vectors = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise WordVectorsError(f"{path} is not a matrix of numbers: {error}.") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise WordVectorsError(f"{path} has shape {vectors.shape} of {vectors.dtype}, not rows.")
    return _read_index(path), vectors.astype(np.float32)


def _read_index(matrix: Path) -> list[str]:
    """Read the words of a matrix: a list in `NAME.json`, lines of `NAME.txt`, or a Parquet file."""
    if (path := matrix.with_suffix(".json")).is_file():
        return [str(word) for word in json.loads(path.read_text(encoding="utf-8"))]
    if (path := matrix.with_suffix(".txt")).is_file():
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    if tables := sorted(matrix.parent.glob("*.parquet")):
        from pyarrow import parquet

        return [str(word) for word in parquet.read_table(tables[0]).column(0).to_pylist()]
    raise WordVectorsError(
        f"{matrix} has no index beside it: write the words of its rows, in order and one per line, "
        f"to {matrix.with_suffix('.txt').name}."
    )
