import sys

import pytest

from lattemix import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `lattemix` in this process; return its exit code, output and error output."""
    sys.argv = ["lattemix", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    if isinstance(stopped.value.code, str):  # sys.exit prints it
        return 1, captured.out, stopped.value.code
    return stopped.value.code or 0, captured.out, captured.err
