"""GitHub's files: valid, pinned, with minimal permissions, and consistent with the project."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import lattemix
from tests.deploy.conftest import check
from tests.deploy.test_images import TARGETS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What a job may do beyond reading the repository.
WRITES = {
    "release.yml/images": {"packages", "id-token", "attestations"},
    "release.yml/pypi": {"id-token"},
    "release.yml/release": {"contents"},
}

Yaml = dict[str, Any]


def read(path: str | Path) -> Yaml:
    return dict(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")))


JOBS = {
    f"{path.name}/{name}": {"permissions": read(path)["permissions"]} | job
    for path in WORKFLOWS
    for name, job in read(path)["jobs"].items()
}


def steps() -> Iterator[Yaml]:
    for job in JOBS.values():
        yield from job["steps"]


def test_files_match_their_schemas() -> None:
    for pattern in check.GITHUB_SCHEMAS.values():
        assert list(ROOT.glob(pattern)), pattern
    assert check.check_github() == 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (".github/workflows/checks.yml", "runs-on:", "run-on:"),
        (".github/dependabot.yml", "interval: weekly", "interval: often"),
        (".github/ISSUE_TEMPLATE/bug.yml", "type: input", "type: box"),
        ("CITATION.cff", "cff-version: 1.2.0", "cff-version: 9"),
    ],
)
def test_check_finds_a_mistake(
    name: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    shutil.copy(ROOT / "CITATION.cff", tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert right in text
    (tmp_path / name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check.check_github() == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.+)", text)
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_an_action_has_the_same_version_everywhere() -> None:
    uses = {step["uses"] for step in steps() if "uses" in step}
    assert len({action.partition("@")[0] for action in uses}) == len(uses)


@pytest.mark.parametrize("name", JOBS)
def test_jobs_have_no_needless_permission(name: str) -> None:
    permissions = JOBS[name]["permissions"]
    writes = {scope for scope, access in permissions.items() if access == "write"}
    assert writes == WRITES.get(name, set())
    assert {scope for scope in permissions if scope not in writes} <= {"contents"}


def test_checkouts_leave_no_credentials_behind() -> None:
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_scripts_contain_no_expressions() -> None:
    """A tag or title in a script could run commands."""
    assert not [step["run"] for step in steps() if "${{" in step.get("run", "")]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    used = {
        target
        for step in steps()
        for target in re.findall(r"(?m)^make ([\w-]+)", step.get("run", ""))
    }
    assert {"deploy-tools", "lint", "test", "lock-check", "docs", "release-check"} <= used
    missing = {t for t in used if not re.search(rf"(?m)^{t}:", makefile)}
    assert not missing


def test_every_supported_python_is_tested_and_released() -> None:
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert JOBS["checks.yml/test"]["strategy"]["matrix"]["python"] == supported
    (setup,) = (
        step
        for step in JOBS["release.yml/build"]["steps"]
        if step.get("uses", "").startswith("actions/setup-python@")
    )
    assert sorted(setup["with"]["python-version"].split()) == supported


def test_every_image_is_released() -> None:
    assert JOBS["release.yml/images"]["strategy"]["matrix"]["target"] == list(TARGETS)


def test_nothing_is_published_before_the_checks() -> None:
    needs = {
        name: JOBS[f"release.yml/{name}"].get("needs") for name in ("images", "pypi", "release")
    }
    assert needs == {"images": "build", "pypi": ["build", "images"], "release": "pypi"}


@pytest.mark.parametrize(("tag", "code"), [(f"v{lattemix.__version__}", 0), ("v99.0.0", 1)])
def test_release_notes_are_the_versions_section(tag: str, code: int, tmp_path: Path) -> None:
    (script,) = (
        step["run"]
        for step in JOBS["release.yml/build"]["steps"]
        if step.get("name") == "Release notes"
    )
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    server, _, repository = PROJECT["urls"]["Repository"].rpartition("/latte-mix/")
    environment = {
        "PATH": os.environ["PATH"],
        "GITHUB_REF_NAME": tag,
        "GITHUB_SERVER_URL": server,
        "GITHUB_REPOSITORY": f"latte-mix/{repository}",
    }
    command = ["bash", "-e", "-c", script]
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == code
    notes = (tmp_path / "notes.md").read_text(encoding="utf-8")
    assert ("### Added" in notes) == (code == 0)
    assert "\n## " not in notes
    assert not re.findall(r"\]\((?!https://)", notes)
    assert (f"]({PROJECT['urls']['Repository']}/blob/{tag}/docs/" in notes) == (code == 0)


def test_citation_and_changelog_have_the_version_and_its_date() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == lattemix.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{citation['version']}] - {citation['date-released']}" in changelog


def test_addresses_are_the_repositorys() -> None:
    repository = PROJECT["urls"]["Repository"]
    assert read("CITATION.cff")["repository-code"] == repository
    files = [ROOT / "SECURITY.md", ROOT / ".github/ISSUE_TEMPLATE/config.yml", ROOT / "Dockerfile"]
    for path in files:
        found = re.findall(r"https://github\.com/[\w-]+/[\w-]+", path.read_text(encoding="utf-8"))
        assert set(found) == {repository}, path.name
