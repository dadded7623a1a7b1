"""The playground with and without a calibration: the pair's rating, and the list's threshold."""

import httpx
import pytest

from model_store import Store
from tests.app.conftest import serving
from tests.browser.helpers import duplicates, fill_list, fill_pair

pytestmark = pytest.mark.browser

PAIR = ("A kid plays football outside.", "Children are playing soccer in the garden.")
LINES = [
    "How do I reset my password?",
    "Where can I change my password?",
    "Can I pay by credit card?",
    "Do you accept credit cards?",
    "The sea was calm.",
]
PROBABILITY = {
    "metric": "centred",
    "kind": "probability",
    "scale": [0, 1],
    "scores": [-1, 0.2, 0.8, 1],
    "values": [0.001, 0.1, 0.9, 0.999],
    "about": "300 support questions",
}


def change_calibration(page, calibration: dict | None) -> None:
    """Serve the model with another calibration, or none."""

    def info(route) -> None:
        route.fulfill(json=route.fetch().json() | {"calibration": calibration})

    def similarity(route) -> None:
        body = route.fetch().json()
        for row in body["similarities"]:
            row.pop("rating")
            row |= {"probability": 0.934} if calibration else {}
        route.fulfill(json=body)

    page.route("**/info*", info)
    page.route("**/similarity", similarity)


def test_leads_with_the_rating_in_words(open_page, url: str) -> None:
    (row,) = httpx.post(f"{url}/similarity", json={"pairs": [PAIR]}).json()["similarities"]
    about = httpx.get(f"{url}/info").json()["calibration"]["about"]
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        assert page.locator("#meaning .value").inner_text() == f"{row['rating']:.1f} of 5"
        words = page.locator("#meaning .words").inner_text()
        ticks = page.locator("#meaning .ticks li").all_inner_texts()
        assert len(ticks) == 6
        assert ticks[round(row["rating"])].endswith(words)
        meter = page.get_by_role("meter", name="Similarity")
        assert float(meter.get_attribute("aria-valuenow")) == pytest.approx(row["rating"])
        assert meter.get_attribute("aria-valuetext") == f"{row['rating']:.1f} of 5 {words}"
        assert f"Rating fitted on: {about}. " in page.locator("#meaning .origin").inner_text()


def test_identical_and_unrelated_sentences_are_at_the_ends(open_page, url: str) -> None:
    with open_page(url) as page:
        for b, words in (PAIR[0], "same meaning"), ("Share prices fell.", "different topics"):
            fill_pair(page, PAIR[0], b)
            assert page.locator("#meaning .words").inner_text() == words


def test_metrics_open_by_keyboard_and_choose_the_explanation(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        assert page.locator("#scores").is_hidden()
        assert page.locator("#explained").inner_text().startswith("centred 0.")
        page.locator("#metrics summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.locator("#breakdown th:text-is('cosine')").wait_for()
        assert page.locator("#explained").inner_text().startswith("cosine 0.")
        page.fill("#b", "Something else")
        page.locator("#pair:not([aria-busy])").wait_for()
        assert page.locator("#scores").is_visible()


def test_a_link_with_another_metric_opens_the_metrics(open_page, url: str) -> None:
    with open_page(f"{url}/#metric=js&a=one&b=two") as page:
        page.locator("#breakdown th:text-is('js')").wait_for()
        assert page.locator("input[value=js]").is_checked()
        assert page.locator("#scores").is_visible()


def test_shows_a_probability_in_percent(open_page, url: str) -> None:
    with open_page("about:blank", at=url) as page:
        change_calibration(page, PROBABILITY)
        page.goto(url)
        fill_pair(page, *PAIR)
        text = page.locator("#meaning [role=status]").inner_text()
        assert text.replace("\u00a0", " ") == "93 % likely a match"
        assert "fitted on: 300 support questions." in page.locator("#meaning .origin").inner_text()
        fill_list(page, LINES)
        label = page.locator("#list .wide").inner_text()
        assert "Near-duplicate threshold, as a probability:" in label
        assert page.locator("#threshold-value").inner_text() == "50\u00a0% (centred 0.500)"
        assert page.locator("#threshold").get_attribute("aria-valuetext") == "50\u00a0%"


def test_without_a_calibration_shows_scores(open_page, url: str) -> None:
    with open_page("about:blank", at=url) as page:
        change_calibration(page, None)
        page.goto(url)
        fill_pair(page, *PAIR)
        assert page.locator("#meaning").is_hidden()
        assert page.locator("#scores").is_visible()
        fill_list(page, LINES)
        assert "no calibration" in page.locator("#threshold-origin").inner_text()
        assert duplicates(page) == []
        page.locator("#threshold").focus()
        page.keyboard.press("Home")
        page.locator("#summary", has_text="5 of 5").wait_for()
        assert page.locator("#threshold-origin").inner_text() == ""


@pytest.mark.parametrize("model", ["default", "fast"])
def test_the_default_threshold_suits_both_models(open_page, default_store: Store, model) -> None:
    with serving(default_store, models=model) as (_, url), open_page(url) as page:
        fill_list(page, LINES)
        assert page.locator("#threshold-value").inner_text().startswith("2.50 of 5 (centred 0.")
        assert duplicates(page) == [LINES[:2], LINES[2:4]]


def test_the_threshold_groups_as_the_api_does(open_page, url: str) -> None:
    request = {"inputs": LINES, "threshold": 3.0, "threshold_on": "rating"}
    expected = httpx.post(f"{url}/matrix", json=request).json()["pairs"]
    with open_page(f"{url}/#tab=list&threshold=3&threshold_on=rating") as page:
        fill_list(page, LINES)
        assert duplicates(page) == [[LINES[i] for i in pair] for pair in expected] != []


def test_a_score_in_the_url_is_converted(open_page, url: str) -> None:
    with open_page(f"{url}/#tab=list&metric=centred&threshold=0.9") as page:
        fill_list(page, LINES)
        assert page.locator("#threshold-value").inner_text().endswith("(centred 0.900)")
        page.locator("#threshold").focus()
        page.keyboard.press("Home")
        page.wait_for_url("**threshold_on=rating**")
        page.select_option("#list-metric", "cosine")
        page.locator("#list:not([aria-busy])").wait_for()
        assert "as many pairs as centred" in page.locator("#threshold-origin").inner_text()
        assert duplicates(page) == [LINES[:2], LINES[2:4]]
        assert page.locator("#threshold-unit").inner_text() == ""
        page.wait_for_url(lambda address: "threshold" not in address)


def test_ignores_a_threshold_that_the_model_cannot_convert(open_page, url: str) -> None:
    with open_page(f"{url}/#tab=list&threshold=0.9&threshold_on=probability") as page:
        fill_list(page, LINES)
        assert page.locator("#threshold-value").inner_text().startswith("2.50 of 5")
