"""A real browser on the playground of a real server."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from model_store import Store
from model_store.store import default_root
from tests.app.conftest import serving

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]

# As root, which containers are, Chromium has no sandbox; the rest keeps it from calling home.
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome")

Opened = Callable[..., AbstractContextManager[Any]]


def _program() -> str | None:
    """The system's Chromium; None for playwright's own, which it knows where to find."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    # `make test-browser`, which installs one, is not content to skip.
    missing = pytest.fail if os.environ.get("BROWSER_REQUIRED") else pytest.skip
    if sync_playwright is None:
        missing("playwright is not installed: `make test-browser` installs it.")
    with sync_playwright() as playwright:
        program = _program()
        if program is None and not Path(playwright.chromium.executable_path).exists():
            missing("There is no Chromium: `make test-browser` installs one.")
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def default_store(browser: "Browser") -> Store:
    """Where the default model is, which is asked for only if there is a browser to ask."""
    return Store(default_root())


@pytest.fixture(scope="session")
def url(default_store: Store) -> Iterator[str]:
    """A server of the default model."""
    with serving(default_store, "default:int8", LATTEMIX_MAX_CHARACTERS="3000") as (_, url):
        yield url


@pytest.fixture
def opened(browser: "Browser") -> Opened:
    """Opens a page, and at its end sees that it complained of nothing and asked nobody else."""

    @contextmanager
    def opened(
        url: str, expected: tuple[str, ...] = (), at: str = "", **context: Any
    ) -> "Iterator[Page]":
        """`expected` are parts of what the console may say, and `at` is where a blank page goes."""
        complaints: list[str] = []
        asked: set[str] = set()
        surroundings = browser.new_context(**context)
        page = surroundings.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type != "log" else 0)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
        try:
            page.goto(url)
            yield page
        finally:
            surroundings.close()
        unexpected = [c for c in complaints if not any(part in c for part in expected)]
        assert unexpected == []
        assert asked == {"/".join((at or url).split("/")[:3])}

    return opened


@pytest.fixture
def pictured() -> "Callable[[Page, str], None]":
    """Keeps a picture of a page for people to look at, in `build/screenshots`."""

    def pictured(page: "Page", name: str) -> None:
        directory = Path(__file__).parents[2] / "build" / "screenshots"
        directory.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=directory / f"{name}.png", full_page=True)

    return pictured


@pytest.fixture(autouse=True, scope="session")
def _no_proxy() -> None:
    """The browser talks to this machine alone."""
    os.environ["NO_PROXY"] = "127.0.0.1"
