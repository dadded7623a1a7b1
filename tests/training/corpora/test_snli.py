import gzip
import json
import zipfile
from pathlib import Path

import pytest

from training.corpora.snli import sentences
from training.corpus import CorpusError

PAIRS = [
    {"gold_label": "neutral", "sentence1": "A man eats.", "sentence2": "A man is hungry."},
    {"gold_label": "-", "sentence1": "A man eats.", "sentence2": "Nobody eats."},
]
EXPECTED = ["A man eats.", "A man is hungry.", "A man eats.", "Nobody eats."]
JSON = "".join(json.dumps(pair) + "\n" for pair in PAIRS)
TABLE = "".join("\t".join(row) + "\n" for row in (PAIRS[0], *(p.values() for p in PAIRS)))


def write_zip(path: Path, name: str, content: str = JSON) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snli_1.0/snli_1.0_dev.jsonl", "{}")
        archive.writestr(f"__MACOSX/snli_1.0/._{name}", "metadata")
        archive.writestr(f"snli_1.0/{name}", content)
    return path


def test_reads_every_published_form(tmp_path: Path) -> None:
    (tmp_path / "snli_1.0_train.jsonl").write_text(JSON)
    (tmp_path / "snli_1.0_train.txt").write_text(TABLE)
    (tmp_path / "snli.jsonl.gz").write_bytes(gzip.compress(JSON.encode()))
    write_zip(tmp_path / "snli_1.0.zip", "snli_1.0_train.jsonl")
    for path in tmp_path.iterdir():
        assert list(sentences(path)) == EXPECTED
        assert list(sentences(path, pairs=1)) == EXPECTED[:2]


def test_rejects_other_archives(tmp_path: Path) -> None:
    other = write_zip(tmp_path / "other.zip", "multinli_1.0_train.jsonl")
    with pytest.raises(CorpusError, match=r"has no snli_1\.0_train\.jsonl: get SNLI from https"):
        list(sentences(other))
    other.write_bytes(b"not a zip file")
    with pytest.raises(CorpusError, match=r"Cannot read the corpus .*: File is not a zip file"):
        list(sentences(other))
    with pytest.raises(CorpusError, match=r"Cannot read the corpus .*: No such file"):
        list(sentences(tmp_path / "none.zip"))
    invalid = write_zip(tmp_path / "invalid.zip", "snli_1.0_train.jsonl", "{")
    with pytest.raises(CorpusError, match=r"invalid\.zip, line 1 is not valid JSON"):
        list(sentences(invalid))
