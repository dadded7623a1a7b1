"""Install the wheel and the sdist as users do, and ask each a question; `make release-check`.

Each is installed with `[cpu,export]` from the package index into an empty environment of every
supported Python at hand, and assembles the default model from scratch.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIR = ("A man is eating.", "Someone is having lunch.")
RATING = 2.2  # of the pair, 0 to 5, as the command prints it
TOLERANCE = 0.15  # int8 arithmetic differs between processors


class CheckError(Exception):
    """A distribution does not install, or gives a wrong answer."""


def supported_versions() -> list[str]:
    """The Python versions in the project's classifiers, such as "3.11"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))


def find_python(version: str) -> Path | None:
    """The interpreter of a version that runs: on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    for candidate in filter(None, candidates):
        program = "import sys, venv; print(sys.executable)"  # a shim of pyenv may find none
        outcome = subprocess.run([candidate, "-c", program], capture_output=True, text=True)
        if outcome.returncode == 0:
            return Path(outcome.stdout.strip())
    return None


def run(*command: object, **environment: str) -> str:
    """Return a command's output; it sees neither the checkout nor settings of Latte-Mix."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name == "LATTEMIX_CACHE" or not name.startswith(("PYTHON", "LATTEMIX_"))
    }
    outcome = subprocess.run(
        [str(part) for part in command],
        cwd=tempfile.gettempdir(),
        env=variables | environment,
        capture_output=True,
        text=True,
    )
    if outcome.returncode:
        raise CheckError(f"{' '.join(map(str, command))}:\n{outcome.stdout}{outcome.stderr}")
    return outcome.stdout


def check_answers(command: Path, version: str, store: Path) -> float:
    """Return the rating of the pair, after checking it and the version."""
    if (printed := run(command, "--version").strip()) != f"lattemix {version}":
        raise CheckError(f"lattemix --version prints {printed!r}, not {version}")
    output = run(command, "similarity", *PAIR, LATTEMIX_STORE=str(store))
    match = re.search(r"^rating\s+([\d.]+)", output, re.MULTILINE)
    if match is None or abs(float(match[1]) - RATING) > TOLERANCE:
        raise CheckError(f"expected a rating of {RATING} ± {TOLERANCE}, but got:\n{output}")
    return float(match[1])


def check(python: Path, distribution: Path) -> float:
    """Install a distribution into an empty environment and return the rating of the pair."""
    version = distribution.name.removesuffix(".tar.gz").split("-")[1]
    with tempfile.TemporaryDirectory(prefix="release-check-") as directory:
        environment = Path(directory) / "venv"
        run(python, "-m", "venv", environment)
        pip = (environment / "bin/python", "-m", "pip", "install", "--quiet")
        run(*pip, f"{distribution}[cpu,export]")
        return check_answers(environment / "bin/lattemix", version, Path(directory) / "store")


def distributions(directory: Path) -> Iterator[Path]:
    """The one wheel and the one sdist of a directory."""
    for pattern in ("*.whl", "*.tar.gz"):
        (path,) = directory.resolve().glob(pattern)
        yield path


def main() -> int:
    """Check every distribution on every Python; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="directory of the wheel and the sdist")
    parser.add_argument("--python", nargs="*", default=supported_versions(), metavar="VERSION")
    parser.add_argument("--all", action="store_true", help="fail if a version is missing")
    arguments = parser.parse_args()
    pythons = {version: find_python(version) for version in arguments.python}
    missing = [version for version, python in pythons.items() if python is None]
    if missing:
        print(f"Not checked, not found: Python {', '.join(missing)}")
    failed = len(missing) == len(pythons) or (arguments.all and bool(missing))
    for version, python in pythons.items():
        for distribution in distributions(arguments.directory) if python else ():
            start = time.perf_counter()
            try:
                result = f"installs, rating {check(python, distribution)}"
            except CheckError as error:
                failed = True
                result = f"FAILED: {error}"
            seconds = time.perf_counter() - start
            print(f"Python {version}, {distribution.name}: {result} ({seconds:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
