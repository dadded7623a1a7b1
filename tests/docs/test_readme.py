"""The README: its commands, code blocks and links."""

import re

import pytest

from tests.docs.conftest import ROOT, dry_run, read_blocks, slugs

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_make_commands_exist() -> None:
    blocks = [block.code for block in read_blocks("README.md") if block.code.startswith("make ")]
    assert blocks == ["make serve", "make test"]
    assert "pytest" in dry_run("test")[-1]


def test_second_make_serve_only_serves() -> None:
    (command,) = dry_run("serve")
    assert "lattemix serve" in command


def test_readme_shows_the_main_commands() -> None:
    code = "\n".join(block.code for block in read_blocks("README.md"))
    for part in ("curl", "/similarity", "lattemix.load()", "lattemix-train train"):
        assert part in code


def test_compose_files_exist() -> None:
    (files,) = re.findall(r"^docker compose((?: -f \S+)+) up$", README, re.MULTILINE)
    assert "docker-compose.yml" in files
    for name in files.replace(" -f", "").split():
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_link_leads_to_a_file_and_heading(link: str) -> None:
    name, _, anchor = link.partition("#")
    page = ROOT / (name or "README.md")
    assert page.is_file()
    assert not anchor or anchor in slugs(page.read_text(encoding="utf-8"))
