"""The playground as a whole: its second tab, keys, and whether everyone can use it."""

import re
from io import BytesIO

import httpx
import numpy as np
import pytest

from model_store import Store
from tests.app.conftest import serving

pytestmark = pytest.mark.browser

LINES = [
    "How do I reset my password?",
    "Where can I change my password?",
    "Can I pay by credit card?",
    "Do you accept credit cards?",
    "The sea was calm.",
]
PHONE, SMALL = {"width": 375, "height": 812}, {"width": 320, "height": 600}
DESKTOP = {"width": 1280, "height": 900}


def listed(page, lines: list[str]) -> None:
    page.click("#tab-list")
    page.fill("#lines", "\n".join(lines))
    page.locator("#list:not([aria-busy])").wait_for()


def clusters(page) -> list[list[str]]:
    return [group.locator("li").all_inner_texts() for group in page.locator("#clusters ul").all()]


def test_near_duplicates_are_found(opened, url: str, pictured) -> None:
    with opened(url) as page:
        listed(page, LINES)
        assert clusters(page) == [LINES[:2], LINES[2:4]]
        said = "4 of 5 sentences are in 2 groups; 3 remain if one of each is kept."
        assert page.locator("#found").inner_text() == said
        pictured(page, "list")


def test_what_is_unrelated_is_no_duplicate(opened, url: str) -> None:
    lines = ["The sea was calm.", "Share prices fell sharply on Tuesday."]
    with opened(url) as page:
        listed(page, lines)
        for metric in page.locator("#list-metric option").all_inner_texts():
            page.select_option("#list-metric", metric)
            page.locator("#list:not([aria-busy])").wait_for()
            said = page.locator("#found").inner_text()
            assert said == "No two of the 2 sentences are so similar.", metric
        assert clusters(page) == []


def test_the_first_of_a_group_is_similar_to_all_of_it(opened, url: str) -> None:
    lines = [
        f"{a} {b} {c}" for a in ("red", "blue") for b in ("dog", "cat") for c in ("runs", "ran")
    ]
    request = {"inputs": lines, "metric": "cosine"}
    headers = {"accept": "application/x-npy"}
    table = np.load(BytesIO(httpx.post(f"{url}/matrix", json=request, headers=headers).content))
    middle = float(np.median(table))
    with opened(f"{url}/#tab=list&metric=cosine&threshold={middle}") as page:
        listed(page, lines)
        found = clusters(page)
        assert found
        for first, *others in found:
            for other in others:
                assert table[lines.index(first), lines.index(other)] >= middle - 1e-5


def test_the_threshold_moves_them(opened, url: str) -> None:
    with opened(url) as page:
        listed(page, LINES)
        slider = page.locator("#threshold")
        slider.focus()
        page.keyboard.press("End")
        page.locator("#found", has_text="1 group").wait_for()
        request = {"inputs": LINES, "top_k": 1}
        best = httpx.post(f"{url}/matrix", json=request).json()
        assert clusters(page) == [[LINES[i] for i in best["pairs"][0]]]
        page.keyboard.press("Home")
        page.locator("#found", has_text="5 of 5").wait_for()
        assert clusters(page) == [LINES]
        page.wait_for_url("**threshold=**")


def test_the_matrix_tells_which_two(opened, url: str) -> None:
    with opened(url) as page:
        listed(page, LINES)
        page.focus("#matrix")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        told = page.locator("#matrix + .told").inner_text()
        score = httpx.post(f"{url}/rank", json={"query": LINES[0], "candidates": LINES[1:2]}).json()
        assert told.endswith(f"“{LINES[0]}” and “{LINES[1]}”")
        assert float(told.partition(":")[0]) == pytest.approx(
            score["results"][0]["score"], abs=6e-4
        )


def test_the_list_without_them_can_be_copied(opened, url: str) -> None:
    with opened(url, permissions=["clipboard-read", "clipboard-write"]) as page:
        listed(page, LINES)
        page.click("#copy-unique")
        page.locator("#toast", has_text="3 sentences are copied.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.splitlines() == [LINES[0], LINES[2], LINES[4]]
        page.click("#list .share")
        page.locator("#toast", has_text="The link is copied.").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
    with opened(link) as page:
        page.locator("#clusters li").first.wait_for()
        assert page.input_value("#lines").splitlines() == LINES


def test_too_many_lines_are_refused_in_words(opened, url: str) -> None:
    with opened(url, expected=("413",)) as page:
        page.click("#tab-list")
        page.fill("#lines", "\n".join(f"line {i}" for i in range(1025)))
        error = page.locator("#list .error", has_text="LATTEMIX_MAX_INPUTS")
        error.wait_for()
        assert error.inner_text().startswith("inputs holds 1,025 sentences")


def test_a_script_in_a_line_stays_text(opened, url: str) -> None:
    hostile = "<b onmouseover=alert(1)>password</b><script>alert(1)</script>"
    with opened(url) as page:
        listed(page, [hostile, hostile])
        assert clusters(page) == [[hostile, hostile]]
        assert page.locator("#list b, #list script").count() == 0


def test_tabs_go_by_arrow_keys(opened, url: str) -> None:
    with opened(url) as page:
        page.focus("#tab-pair")
        page.keyboard.press("ArrowRight")
        assert page.locator("#list").is_visible()
        assert page.locator("#pair").is_hidden()
        assert page.evaluate("document.activeElement.id") == "tab-list"
        page.wait_for_url("**tab=list**")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, SMALL], ids=["desktop", "phone", "small"])
def test_everyone_can_use_it(opened, url: str, pictured, scheme: str, size: dict) -> None:
    from axe_playwright_python.sync_playwright import Axe

    name = f"{scheme}-{size['width']}"
    with opened(url, color_scheme=scheme, viewport=size) as page:
        page.locator("#links li").first.wait_for()
        for tab, ready in (("pair", "#links li"), ("list", "#clusters li")):
            page.click(f"#tab-{tab}")
            page.locator(ready).first.wait_for()
            page.locator(f"#{tab}:not([aria-busy])").wait_for()
            page.wait_for_timeout(250)  # until what fades has faded
            report = Axe().run(page)
            assert report.violations_count == 0, report.generate_report()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            pictured(page, f"{tab}-{name}")


def test_a_key_is_asked_for_and_kept_out_of_the_address(opened, default_store: Store) -> None:
    with (
        serving(default_store, "default:int8", LATTEMIX_API_KEYS="s3cret") as (_, locked),
        opened(locked, expected=("401",)) as page,
    ):
        page.locator("#pair .error", has_text="This service needs a key").wait_for()
        page.fill("#key-value", "schlüssel")
        page.keyboard.press("Enter")
        page.locator("#toast", has_text="A key is plain ASCII").wait_for()
        page.fill("#key-value", "wrong")
        page.keyboard.press("Enter")
        page.locator("#pair .error", has_text="The key sent is not one").wait_for()
        page.fill("#key-value", "s3cret")
        page.keyboard.press("Enter")
        page.locator("#links li").first.wait_for()
        assert page.locator("#pair .error").inner_text() == ""
        assert not re.search("s3cret|wrong", page.url)
