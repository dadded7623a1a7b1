"""Hooks of the documentation site; see mkdocs.yml.

Pages use the links of a code host. Files outside docs/ that a page links to become part of the
site, below `repository/`. A comment `<!-- ::: module.name -->` becomes the docstrings of that name.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:)([^()#\s]+)(#[^()\s]*)?\)")
DOCSTRINGS = re.compile(r"^<!-- (::: .+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files outside docs/, and those that they link to."""
    pages = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    pages += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")]  # of the navigation
    while pages:
        page = pages.pop()
        for path in [page, *_linked_files(page)]:
            site_path = _site_path(path)
            if path.is_relative_to(DOCS) or files.get_file_from_path(site_path):
                continue
            file = File.generated(config, site_path, abs_src_path=str(path))
            file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)
            if path.suffix == ".md":
                pages.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Translate links to files outside docs/, and insert docstrings."""
    directory = Path(page.file.abs_src_path or "").parent

    def translate(link: re.Match[str]) -> str:
        text, target, anchor = link[1], directory / link[2], link[3] or ""
        if target.is_dir():
            return text  # the site has files only
        if not target.is_file():
            return link[0]  # MkDocs reports it
        url = os.path.relpath(_site_path(target.resolve()), Path(page.file.src_uri).parent)
        return f"[{text}]({url}{anchor})"

    return DOCSTRINGS.sub(r"\1", LINK.sub(translate, markdown))


def _linked_files(page: Path) -> Iterator[Path]:
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        path = (page.parent / link[2]).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path


def _site_path(path: Path) -> str:
    inside = path.is_relative_to(DOCS)
    return str(path.relative_to(DOCS) if inside else "repository" / path.relative_to(ROOT))
