"""The playground's list tab, keys, and models."""

import re
from io import BytesIO

import httpx
import numpy as np
import pytest

from model_store import Store
from tests.app.conftest import serving
from tests.browser.helpers import duplicates, fill_list, upload
from tests.browser.labelled import RATED, labelled_file

pytestmark = pytest.mark.browser

LINES = [
    "How do I reset my password?",
    "Where can I change my password?",
    "Can I pay by credit card?",
    "Do you accept credit cards?",
    "The sea was calm.",
]


def test_groups_near_duplicates(open_page, url: str, screenshot) -> None:
    with open_page(url) as page:
        fill_list(page, LINES)
        assert duplicates(page) == [LINES[:2], LINES[2:4]]
        summary = "4 of 5 sentences form 2 groups of near-duplicates; 3 remain without duplicates."
        assert page.locator("#summary").inner_text() == summary
        screenshot(page, "list")


def test_unrelated_sentences_are_not_near_duplicates(open_page, url: str) -> None:
    lines = ["The sea was calm.", "Share prices fell sharply on Tuesday."]
    with open_page(url) as page:
        fill_list(page, lines)
        for metric in page.locator("#list-metric option").all_inner_texts():
            page.select_option("#list-metric", metric)
            page.locator("#list:not([aria-busy])").wait_for()
            summary = page.locator("#summary").inner_text()
            assert summary == "No near-duplicates among 2 sentences.", metric
        assert duplicates(page) == []


def test_group_members_are_similar_to_the_first(open_page, url: str) -> None:
    lines = [
        f"{a} {b} {c}" for a in ("red", "blue") for b in ("dog", "cat") for c in ("runs", "ran")
    ]
    request = {"inputs": lines, "metric": "cosine"}
    headers = {"accept": "application/x-npy"}
    table = np.load(BytesIO(httpx.post(f"{url}/matrix", json=request, headers=headers).content))
    middle = float(np.median(table))
    with open_page(f"{url}/#tab=list&metric=cosine&threshold={middle}") as page:
        fill_list(page, lines)
        groups = duplicates(page)
        assert groups
        for first, *others in groups:
            for other in others:
                assert table[lines.index(first), lines.index(other)] >= middle - 1e-5


def test_slider_sets_the_threshold(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_list(page, LINES)
        slider = page.locator("#threshold")
        slider.focus()
        page.keyboard.press("End")
        page.locator("#summary", has_text="1 group").wait_for()
        request = {"inputs": LINES, "top_k": 1}
        best = httpx.post(f"{url}/matrix", json=request).json()
        assert duplicates(page) == [[LINES[i] for i in best["pairs"][0]]]
        page.keyboard.press("Home")
        page.locator("#summary", has_text="5 of 5").wait_for()
        assert duplicates(page) == [LINES]
        page.wait_for_url("**threshold=**")


def test_matrix_describes_the_selected_pair(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_list(page, LINES)
        page.focus("#matrix")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        details = page.locator("#matrix + .details").inner_text()
        score = httpx.post(f"{url}/rank", json={"query": LINES[0], "texts": LINES[1:2]}).json()
        assert details.endswith(f"“{LINES[0]}” and “{LINES[1]}”")
        (best,) = score["results"]
        assert details.startswith(f"{best['rating']:.2f} of 5 (centred {best['score']:.3f}): ")


def test_copies_the_list_without_duplicates_and_the_link(open_page, url: str) -> None:
    with open_page(url, permissions=["clipboard-read", "clipboard-write"]) as page:
        fill_list(page, LINES)
        page.click("#copy-unique")
        page.locator("#toast", has_text="3 sentences copied.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.splitlines() == [LINES[0], LINES[2], LINES[4]]
        page.click("#list .share")
        page.locator("#toast", has_text="Link copied.").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
    with open_page(link) as page:
        page.locator("#duplicates li").first.wait_for()
        assert page.input_value("#lines").splitlines() == LINES


def test_shows_the_error_for_too_many_lines(open_page, url: str) -> None:
    with open_page(url, expected=("413",)) as page:
        page.click("#tab-list")
        page.fill("#lines", "\n".join(f"line {i}" for i in range(1025)))
        error = page.locator("#list .error", has_text="LATTEMIX_MAX_INPUTS")
        error.wait_for()
        assert error.inner_text().startswith("inputs holds 1,025 sentences")


def test_markup_in_a_line_stays_text(open_page, url: str) -> None:
    hostile = "<b onmouseover=alert(1)>password</b><script>alert(1)</script>"
    with open_page(url) as page:
        fill_list(page, [hostile, hostile])
        assert duplicates(page) == [[hostile, hostile]]
        assert page.locator("#list b, #list script").count() == 0


def test_arrow_keys_switch_tabs(open_page, url: str) -> None:
    with open_page(url) as page:
        page.focus("#tab-pair")
        page.keyboard.press("ArrowRight")
        assert page.locator("#list").is_visible()
        assert page.locator("#pair").is_hidden()
        assert page.evaluate("document.activeElement.id") == "tab-list"
        page.wait_for_url("**tab=list**")
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.id") == "tab-labelled"
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "tab-pair"
        page.keyboard.press("ArrowLeft")
        assert page.locator("#labelled").is_visible()


def test_asks_for_a_key_and_keeps_it_out_of_the_url(open_page, default_store: Store) -> None:
    with (
        serving(default_store, "default:int8", LATTEMIX_API_KEYS="s3cret") as (_, locked),
        open_page(locked, expected=("401",)) as page,
    ):
        page.locator("#pair .error", has_text="This service needs a key").wait_for()
        page.fill("#key-value", "schlüssel")
        page.keyboard.press("Enter")
        page.locator("#toast", has_text="A key consists of ASCII characters").wait_for()
        page.fill("#key-value", "wrong")
        page.keyboard.press("Enter")
        page.locator("#pair .error", has_text="The API key is not valid").wait_for()
        page.fill("#key-value", "s3cret")
        page.keyboard.press("Enter")
        page.locator("#links li").first.wait_for()
        assert page.locator("#pair .error").inner_text() == ""
        assert not re.search("s3cret|wrong", page.url)
        upload(page, labelled_file(RATED))
        command = page.locator("#use-threshold code").inner_text()
        assert ' -H "authorization: Bearer $LATTEMIX_API_KEY" ' in command


def test_switches_models(open_page, default_store: Store, screenshot) -> None:
    with serving(default_store, models="default,fast") as (_, url), open_page(url) as page:
        page.locator("#pair:not([aria-busy])").wait_for()
        page.click("#metrics summary")
        select, shown = page.locator("#models select"), page.locator("#score-centred")
        assert select.locator("option").all_inner_texts() == ["default", "fast"]
        before = shown.inner_text()
        with page.expect_response("**/similarity") as response:
            select.select_option("fast")
        assert response.value.json()["model"] == "fast"
        page.locator("#pair:not([aria-busy])").wait_for()
        assert page.locator("#model").inner_text().startswith("fast, int8: 64 latent dims")
        score = response.value.json()["similarities"][0]["centred"]
        assert shown.inner_text() == f"{score:.3f}" != before
        page.wait_for_url("**model=fast**")
        screenshot(page, "models")
        page.reload()
        page.locator("#pair:not([aria-busy])").wait_for()
        page.click("#metrics summary")
        assert shown.inner_text() == f"{score:.3f}"


def test_one_model_needs_no_choice(open_page, url: str) -> None:
    with open_page(url) as page:
        page.locator("#pair:not([aria-busy])").wait_for()
        assert page.locator("#models").is_hidden()
