"""Input and results of the playground's tabs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def fill_pair(page: Any, a: str, b: str) -> None:
    page.fill("#a", a)
    page.fill("#b", b)
    wait_until_idle(page)


def wait_until_idle(page: Any) -> None:
    page.locator("#pair:not([aria-busy])").wait_for()


def fill_list(page: Any, lines: list[str]) -> None:
    page.click("#tab-list")
    page.fill("#lines", "\n".join(lines))
    page.locator("#list:not([aria-busy])").wait_for()


def duplicates(page: Any) -> list[list[str]]:
    return [group.locator("li").all_inner_texts() for group in page.locator("#duplicates ul").all()]


def upload(page: Any, file: Any) -> None:
    """Open the tab, choose a file, and wait for results or an error."""
    page.locator("#file:enabled").wait_for(state="attached")  # the page has loaded
    page.click("#tab-labelled")
    page.set_input_files("#file", file)
    page.locator("#labelled:not([aria-busy])").wait_for()


@contextmanager
def requests(page: Any, path: str) -> Iterator[list[dict]]:
    """Collect the JSON bodies of requests to a path."""
    bodies: list[dict] = []

    def collect(request) -> None:
        if request.url.endswith(path):
            bodies.append(request.post_data_json)

    page.on("request", collect)
    yield bodies
    page.remove_listener("request", collect)


def change_info(page: Any, **changes: object) -> None:
    """Change what the page reads from `/info`."""
    page.route("**/info*", lambda route: route.fulfill(json=route.fetch().json() | changes))
