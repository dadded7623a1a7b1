"""Take the README's picture of the playground: `python -m tests.browser.picture`.

Needs the shipped models, the extras `browser` and `calibrate`, and a Chromium: `make test-browser`.
"""

import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from model_store import Store
from model_store.store import default_root
from tests.app.conftest import serving
from tests.browser.conftest import FLAGS, find_chromium

PICTURE = Path(__file__).parents[2] / "docs" / "playground.png"
SIZE = ViewportSize(width=1080, height=924)  # the README shows it at about 800 pixels
COLOURS = 128  # enough for text; a third of the file
PAIR = ("How do I reset my password?", "I forgot my password and cannot log in.")


def show_pair(page: Page, url: str) -> None:
    """Open the page and wait for the explanation of a pair."""
    page.goto(url)
    for field, text in zip(("#a", "#b"), PAIR, strict=True):
        page.fill(field, text)
    page.locator("#alignment .word", has_text="log").wait_for()
    page.locator("#pair:not([aria-busy])").wait_for()
    page.locator("#alignment .word", has_text="reset").hover()
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(500)  # end of the fade


def main() -> None:
    """Write the picture."""
    os.environ["NO_PROXY"] = "127.0.0.1"
    with (
        serving(Store(default_root()), "default:int8") as (_, url),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        context = browser.new_context(viewport=SIZE, device_scale_factor=2, color_scheme="light")
        page = context.new_page()
        show_pair(page, url)
        page.screenshot(path=PICTURE)
        browser.close()
    Image.open(PICTURE).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        PICTURE, optimize=True
    )


if __name__ == "__main__":
    main()
