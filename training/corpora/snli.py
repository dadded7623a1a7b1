"""The sentences of SNLI's training pairs."""

import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from training.corpus import CorpusError
from training.readers import read, read_json_lines

URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
TRAIN = "snli_1.0_train.jsonl"
_COLUMNS = ("sentence1", "sentence2")


def sentences(source: Path, pairs: int | None = None) -> Iterator[str]:
    """Yield both sentences of each pair, or of the first `pairs` pairs.

    `source` is `snli_1.0.zip`, whose training split is read, or one of its files: `.jsonl` or
    `.txt`, or `.gz` of either.
    """
    read_source = _read_zip(source) if source.suffix == ".zip" else read([source], _COLUMNS)
    return islice(read_source, None if pairs is None else 2 * pairs)


def _read_zip(path: Path) -> Iterator[str]:
    """Yield the sentences of the training split, without unpacking the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            # By the last part of the name: "__MACOSX/snli_1.0/._snli_1.0_train.jsonl" is another.
            names = [name for name in archive.namelist() if PurePosixPath(name).name == TRAIN]
            if not names:
                raise CorpusError(f"{path} has no {TRAIN}: get SNLI from {URL}.")
            with archive.open(names[0]) as file:
                lines = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
                yield from read_json_lines(lines, path, _COLUMNS)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"Cannot read the corpus {path}: {reason}.") from error
