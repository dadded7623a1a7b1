import os
from pathlib import Path

import pytest

from lattemix.bulk.sources import Source, list_sources
from model_store import LatteMixError


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text\n")


def listed(path: Path) -> list[str]:
    return [str(Path(source.path).relative_to(path)) for source in list_sources(path)]


def test_lists_the_files_of_a_directory_by_name(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a/y.csv", "a/x.csv", "a.csv", "c/d/e.txt")
    assert listed(tmp_path) == ["a/x.csv", "a/y.csv", "a.csv", "b.csv", "c/d/e.txt"]


def test_skips_hidden_files_and_metadata(tmp_path: Path) -> None:
    make(tmp_path, "x.csv", "_SUCCESS", ".x.csv.crc", "_temporary/y.csv", ".git/z.csv", "a/_meta")
    assert listed(tmp_path) == ["x.csv"]


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    make(tmp_path, "_x.csv")
    (source,) = list_sources(tmp_path / "_x.csv")
    assert (source.path, source.bytes) == (str(tmp_path / "_x.csv"), 5)


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "in/x.csv")
    monkeypatch.chdir(tmp_path)
    assert list_sources(Path("in")) == list_sources(tmp_path / "in")


def test_the_state_changes_with_the_file(tmp_path: Path) -> None:
    make(tmp_path, "x.csv")
    path = tmp_path / "x.csv"
    before = Source.at(path)
    assert Source.at(path) == before
    os.utime(path, ns=(0, before.modified + 1))
    assert Source.at(path) != before
    path.write_text("longer text\n")
    os.utime(path, ns=(0, before.modified))
    assert Source.at(path) != before


@pytest.mark.parametrize("name", [None, "_SUCCESS"])
def test_rejects_a_directory_without_files(tmp_path: Path, name: str | None) -> None:
    make(tmp_path, *([name] if name else []))
    with pytest.raises(LatteMixError, match=r"holds no files\.$"):
        list_sources(tmp_path)


def test_rejects_a_link_to_a_directory_but_not_to_a_file(tmp_path: Path) -> None:
    make(tmp_path, "in/x.csv", "there/y.csv")
    (tmp_path / "in/z.csv").symlink_to(tmp_path / "there/y.csv")
    assert listed(tmp_path / "in") == ["x.csv", "z.csv"]
    (tmp_path / "in/link").symlink_to(tmp_path / "there")
    with pytest.raises(LatteMixError, match=r"in/link is a link to a directory: name that"):
        list_sources(tmp_path / "in")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_sources(tmp_path / "none.csv")
