"""`deploy/check.py`: every check passes, finds a mistake, and reports a missing tool."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.conftest import check, require

ROOT = Path(__file__).parents[2]
# Per tool: its check, and a mistake that only this tool finds: file, text, replacement.
MISTAKES = {
    "nginx": (
        check.check_nginx,
        "deploy/nginx/nginx.conf.template",
        "least_conn;",
        "last_conn;",
    ),
    "promtool": (
        check.check_prometheus,
        "deploy/monitoring/alerts.yml",
        "for: 5m",
        "for: 5 minutes",
    ),
    "kustomize": (
        check.check_kubernetes,
        "deploy/kubernetes/overlays/cpu/kustomization.yaml",
        "components/hpa",
        "components/hpb",
    ),
    "docker compose": (
        check.check_stacks,
        "deploy/compose/gpus.yml",
        "service: api",
        "service: apy",
    ),
}
Mistake = tuple[Callable[[], int], str, str, str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all checked files."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for compose in ROOT.glob("docker-compose*.yml"):
        shutil.copy(compose, tmp_path)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("tool", "mistake"), MISTAKES.items(), ids=MISTAKES)
def test_check_passes_and_finds_a_mistake(tool: str, mistake: Mistake, files: Path) -> None:
    require(tool)
    run, name, right, wrong = mistake
    assert run() == 0
    text = (files / name).read_text(encoding="utf-8")
    assert right in text
    (files / name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    assert run() == 1


@pytest.mark.parametrize(("required", "failures"), [("", 0), ("1", 1)])
@pytest.mark.parametrize(("tool", "mistake"), MISTAKES.items(), ids=MISTAKES)
def test_missing_tool_is_reported_and_fails_if_required(
    tool: str,
    mistake: Mistake,
    required: str,
    failures: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("DEPLOY_TOOLS_REQUIRED", required)
    run, *_ = mistake
    assert run() == failures
    assert f"Not checked, {tool} " in capsys.readouterr().out
