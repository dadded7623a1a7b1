"""The documentation site: navigation and architecture diagram. `make lint` builds the site."""

import re
from typing import Any

import yaml

import lattemix
from tests.docs.conftest import ROOT, slugs

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


class Loader(yaml.SafeLoader):
    """YAML in which tags of Python objects are ignored."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [
        page
        for item in (entry.values() if isinstance(entry, dict) else entry)
        for page in nav_pages(item)
    ]


def test_navigation_has_every_page_once() -> None:
    pages = nav_pages(yaml.load(CONFIG, Loader)["nav"])
    assert len(pages) == len(set(pages))
    inside = {page for page in pages if not page.startswith("repository/")}
    docs = ROOT / "docs"
    assert inside == {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    for page in set(pages) - inside:
        assert (ROOT / page.removeprefix("repository/")).is_file(), page


def test_modules_of_the_architecture_diagram_exist() -> None:
    diagram = (ROOT / "docs/architecture.svg").read_text(encoding="utf-8")
    modules = re.findall(r'<text class="module"[^>]*>([^<]+)</text>', diagram)
    assert len(modules) > 15
    for module in modules:
        path = ROOT / module
        assert path.is_dir() if module.endswith("/") else path.is_file(), module


def test_reference_lists_the_public_names() -> None:
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = set(lattemix.__all__) - {"__version__"}
    table = page[: page.index("\n## ")]
    for name in names:
        assert f"`{name}`" in table, name
    documented = set(re.findall(r"^<!-- ::: lattemix\.(\w+) -->$", page, re.MULTILINE))
    assert documented == names - {"Metric"}  # a type alias without a docstring


def test_slugs_are_those_of_the_code_host() -> None:
    text = (
        "# Limits: roles, negation\n## `default`\n```sh\n# a comment\n```\n## [A](b.md) c\n## A c\n"
    )
    assert slugs(text) == ["limits-roles-negation", "default", "a-c", "a-c-1"]


def test_lists_read_the_same_on_the_site() -> None:
    """Unlike the code host, the site needs a blank line before lists, and four spaces to nest."""
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        item = r"(?:[-*]|\d+\.) "
        assert not re.search(rf"^(?!{item}| |$).+\n{item}", text, re.MULTILINE), path
        assert not re.search(rf"^ {{1,3}}{item}", text, re.MULTILINE), path
