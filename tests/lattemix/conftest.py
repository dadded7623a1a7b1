import shutil
import sys

import pytest

from app.settings import Settings
from lattemix import cli
from model_store import Store


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `lattemix` in this process; return its exit code, output and error output."""
    sys.argv = ["lattemix", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    if isinstance(stopped.value.code, str):  # sys.exit prints it
        return 1, captured.out, stopped.value.code
    return stopped.value.code or 0, captured.out, captured.err


@pytest.fixture(scope="session")
def two_models(
    store: Store, static_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a server of two models, `tiny` and `static`."""
    root = tmp_path_factory.mktemp("two-models")
    shutil.copytree(store.root / "tiny", root / "tiny")
    shutil.copytree(static_store.root / "static", root / "static")
    return Settings(store=root, models=("tiny", "static"), max_inputs=8, max_body_bytes=4096)
