"""The playground of a real server in a real browser."""

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

# Chromium has no sandbox as root, the usual user of containers; the rest stops background requests.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

OpenPage = Callable[..., AbstractContextManager[Any]]


def find_chromium() -> str | None:
    """Path of the system's Chromium; None for the one that playwright installed."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    # `make test-browser` installs a browser and must not skip.
    missing = pytest.fail if os.environ.get("BROWSER_REQUIRED") else pytest.skip
    if sync_playwright is None:
        missing("playwright is not installed: `make test-browser` installs it.")
    with sync_playwright() as playwright:
        program = find_chromium()
        if program is None and not Path(playwright.chromium.executable_path).exists():
            missing("There is no Chromium: `make test-browser` installs one.")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def default_store(browser: "Browser") -> Store:
    """Store of the default model; depends on `browser` so that it is needed only with one."""
    return Store(default_root())


@pytest.fixture(scope="session")
def url(default_store: Store) -> Iterator[str]:
    """URL of a server with the default model."""
    with serving(default_store, "default:int8", LATTEMIX_MAX_CHARACTERS="3000") as (_, url):
        yield url


@pytest.fixture
def open_page(browser: "Browser") -> OpenPage:
    """Open a page; on exit, check that it logged no errors and contacted no other host."""

    @contextmanager
    def open_page(
        url: str, expected: tuple[str, ...] = (), at: str = "", **context: Any
    ) -> "Iterator[Page]":
        """Allow console messages with the parts in `expected`; `at` is the host of a blank page."""
        messages: list[str] = []
        hosts: set[str] = set()
        browser_context = browser.new_context(**context)
        page = browser_context.new_page()
        page.on("console", lambda entry: messages.append(entry.text) if entry.type != "log" else 0)
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
        try:
            page.goto(url)
            yield page
        finally:
            browser_context.close()
        unexpected = [m for m in messages if not any(part in m for part in expected)]
        assert unexpected == []
        assert hosts == {"/".join((at or url).split("/")[:3])}

    return open_page


@pytest.fixture
def screenshot() -> "Callable[[Page, str], None]":
    """Save a screenshot in `build/screenshots`."""

    def screenshot(page: "Page", name: str) -> None:
        directory = Path(__file__).parents[2] / "build" / "screenshots"
        directory.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=directory / f"{name}.png", full_page=True)

    return screenshot


@pytest.fixture(autouse=True, scope="session")
def _no_proxy() -> None:
    """Connect to the local server directly."""
    os.environ["NO_PROXY"] = "127.0.0.1"
