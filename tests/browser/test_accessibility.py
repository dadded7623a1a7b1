"""The playground by keyboard and screen reader: no violations in any state, and announcements."""

from collections.abc import Callable
from typing import Any

import pytest

from model_store import Store
from tests.app.conftest import serving
from tests.browser.helpers import change_info, fill_list, fill_pair, upload
from tests.browser.labelled import RATED, labelled_file

pytestmark = pytest.mark.browser

PHONE, SMALL = {"width": 375, "height": 812}, {"width": 320, "height": 600}
DESKTOP = {"width": 1280, "height": 900}
LINES = ["How do I reset my password?", "Where can I change my password?", "The sea was calm."]


def assert_accessible(page: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.wait_for_timeout(250)  # end of the fade
    report = Axe().run(page)
    assert report.violations_count == 0, report.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, SMALL], ids=["desktop", "phone", "small"])
def test_results_have_no_violations_or_horizontal_scrolling(
    open_page, url: str, screenshot, scheme: str, size: dict
) -> None:
    name = f"{scheme}-{size['width']}"
    with open_page(url, color_scheme=scheme, viewport=size) as page:
        page.locator("#links li").first.wait_for()
        tabs = {"pair": "#links li", "list": "#duplicates li", "labelled": "#agreement td"}
        for tab, ready in tabs.items():
            page.click(f"#tab-{tab}")
            if tab == "labelled":
                page.set_input_files("#file", labelled_file(RATED))
            page.locator(ready).first.wait_for()
            page.locator(f"#{tab}:not([aria-busy])").wait_for()
            screenshot(page, f"{tab}-{name}")
            for details in page.locator(f"#{tab} details:not([open]) summary").all()[::-1]:
                details.click()
            for table in page.locator(f"#{tab} table").all():
                table.locator("tr").first.wait_for(state="attached")
            assert_accessible(page)


def fail(page: Any, tab: str) -> None:
    page.route("**/similarity", lambda route: route.abort())
    page.route("**/matrix", lambda route: route.abort())
    fill_pair(page, "one", "two")
    if tab == "list":
        fill_list(page, LINES)
    if tab == "labelled":
        upload(page, labelled_file(RATED))
    page.locator(f"#{tab} .error:not(:empty)").wait_for()


def empty(page: Any, tab: str) -> None:
    fill_pair(page, "", "")
    fill_list(page, [])
    page.click(f"#tab-{tab}")
    page.locator(f"#{tab} .hint:not(:empty)").wait_for()


def without_calibration(page: Any, tab: str) -> None:
    change_info(page, calibration=None)
    page.reload()
    fill_pair(page, "one", "two")
    if tab == "list":
        fill_list(page, LINES)
    if tab == "labelled":
        upload(page, labelled_file(RATED))


STATES = [fail, empty, without_calibration]


@pytest.mark.parametrize("state", STATES, ids=[state.__name__ for state in STATES])
@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)])
def test_other_states_have_no_violations(
    open_page, url: str, scheme: str, size: dict, state: Callable[[Any, str], None]
) -> None:
    expected = ("ERR_FAILED",)
    for tab in ("pair", "list", "labelled"):
        with open_page(url, expected=expected, color_scheme=scheme, viewport=size) as page:
            page.locator("#links li").first.wait_for()
            state(page, tab)
            assert_accessible(page)


def test_the_question_for_a_key_has_no_violations(open_page, default_store: Store) -> None:
    with (
        serving(default_store, models="default,fast", LATTEMIX_API_KEYS="s3cret") as (_, locked),
        open_page(locked, expected=("401",), color_scheme="dark", viewport=PHONE) as page,
    ):
        page.locator("#key").wait_for()
        assert_accessible(page)
        page.fill("#key-value", "s3cret")
        page.keyboard.press("Enter")
        page.locator("#links li").first.wait_for()
        assert page.locator("#models").is_visible()
        assert_accessible(page)


def test_every_control_is_reached_by_tab_and_shows_focus(open_page, url: str) -> None:
    describe = """() => {
        const element = document.activeElement;
        const style = getComputedStyle(element);
        return [element.id || element.className || element.textContent.trim(), style.outlineStyle];
    }"""
    with open_page(f"{url}/#tab=list") as page:
        fill_list(page, LINES)
        page.focus("#tab-list")
        reached = []
        while not reached or reached[-1] != "copy-unique":
            page.keyboard.press("Tab")
            name, outline = page.evaluate(describe)
            assert outline == "solid", name
            reached.append(name)
            assert len(reached) < 20
        copies = ["share", "curl", "python"]
        assert reached[:7] == ["lines", "list-metric", "threshold", *copies, "matrix"]


def test_results_hints_and_errors_are_announced(open_page, url: str) -> None:
    with open_page(url, expected=("ERR_FAILED",)) as page:
        fill_pair(page, "A man is eating.", "Someone has lunch.")
        roles = {
            "#meaning .value": "status",
            "#pair .hint": "status",
            "#pair .error": "alert",
            "#summary": "status",
            "#labelled-summary": "status",
            "#toast": "status",
        }
        for selector, role in roles.items():
            found = page.locator(selector).evaluate("e => e.closest('[role]').role")
            assert found == role, selector
        # A live region is announced only if it was there before its text changed.
        region = page.locator("#pair .hint").element_handle()
        page.fill("#a", "")
        page.locator("#pair .hint:not(:empty)").wait_for()
        assert region.inner_text() == "Enter a first sentence to compare both."


def test_forced_colours_keep_the_meter(open_page, url: str) -> None:
    with open_page(url, forced_colors="active") as page:
        fill_pair(page, "A man is eating.", "A man is eating.")
        bar = "getComputedStyle(document.querySelector('[role=meter]'), '::before')"
        page_colour = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(f"{bar}.backgroundColor") != page.evaluate(page_colour)
