"""The playground's pair tab."""

import re
from contextlib import suppress
from time import sleep

import httpx
import pytest

from tests.browser.helpers import fill_pair, wait_until_idle

pytestmark = pytest.mark.browser

PAIR = ("A kid plays football outside.", "Children are playing soccer in the garden.")
MINUS = "\u2212"
Error = pytest.importorskip("playwright.sync_api", reason="see `make test-browser`").Error
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>&amp;'


def open_metrics(page) -> None:
    page.locator("#metrics:not([open]) summary").click()


def scores(page) -> dict[str, float]:
    shown = page.locator(".score").all()
    return {
        score.get_attribute("id").removeprefix("score-"): float(
            score.inner_text().replace(MINUS, "-")
        )
        for score in shown
    }


def test_shows_every_metric(open_page, url: str) -> None:
    metrics = ["cosine", "js", "l2", "bhattacharyya", "centred"]
    request = {"pairs": [PAIR], "metrics": metrics}
    (expected,) = httpx.post(f"{url}/similarity", json=request).json()["similarities"]
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        open_metrics(page)
        assert scores(page) == pytest.approx({m: expected[m] for m in metrics}, abs=6e-4)


def test_recommended_metric_comes_first_and_is_selected(open_page, url: str) -> None:
    recommended = httpx.get(f"{url}/info").json()["recommended_metric"]
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        open_metrics(page)
        first = page.locator("#scores label").first
        assert first.locator("span").inner_text() == f"{recommended} (recommended)"
        assert first.locator("input").is_checked()
        page.click("#tab-list")
        assert page.locator("#list-metric").input_value() == recommended
        assert page.locator("#list-metric option").first.get_attribute("value") == recommended


def test_lines_connect_aligned_words(open_page, url: str, screenshot) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        links = page.locator("#links li").all_inner_texts()
        pairs = {re.sub(rf" [{MINUS}\d.]+$", "", link) for link in links}
        assert {"football ~ soccer", "kid ~ Children", "plays ~ playing"} <= pairs
        assert page.locator("#alignment svg path").count() == len(links)
        assert page.locator("#alignment .word").all_inner_texts()[:3] == ["A", "kid", "plays"]
        football = page.locator("#alignment .word", has_text="football").bounding_box()
        middle = football["x"] + football["width"] / 2
        frame = page.locator("#alignment svg").bounding_box()
        drawn = [path.get_attribute("d") for path in page.locator("#alignment svg path").all()]
        starts = [frame["x"] + float(d.removeprefix("M").split()[0]) for d in drawn]
        assert min(abs(start - middle) for start in starts) < 1
        screenshot(page, "pair")


def test_contributions_sum_to_the_score_of_the_selected_metric(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        open_metrics(page)
        for metric in ("cosine", "l2"):
            page.check(f"input[value={metric}]")
            page.wait_for_selector(f"#breakdown th:text-is('{metric}')")
            rows = page.locator("#breakdown tr").all_inner_texts()
            cells = {row.split("\t")[0]: row.replace(MINUS, "-").split("\t")[1:] for row in rows}
            shown = scores(page)[metric]
            assert [float(cell) for cell in cells[metric]] == pytest.approx([shown] * 2, abs=2e-3)
            for words, special in zip(cells["words"], cells["special tokens"], strict=True):
                assert float(words) + float(special) == pytest.approx(shown, abs=2e-3)


def test_word_details_show_its_contribution(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, "He chewed eatingly", "Someone had lunch")
        page.locator("#alignment .word", has_text="eatingly").focus()
        details = page.locator("#word-details").inner_text()
        assert re.match(rf"“eatingly” \(eating ##ly\): contribution [+{MINUS}]0\.\d{{3}}", details)


def test_latent_dims_show_typical_words(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, "A man is eating.", "Someone is having lunch.")
        assert "food" in page.locator("#agree").inner_text()
        assert page.locator("#agree tr").count() == page.locator("#disagree tr").count() == 6


def test_arrow_keys_explore_mixtures(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        page.locator("#mixtures canvas").first.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        words = [word["word"] for word in httpx.get(f"{url}/latents/1/1").json()["words"]]
        page.locator("#class-details", has_text=", ".join(words)).wait_for()
        assert page.locator("#class-details").inner_text().startswith("Dim 1, class 1: first 0.")


def test_word_matrix_describes_the_selected_pair(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        box = page.locator("#word-matrix").bounding_box()
        page.hover("#word-matrix", position={"x": box["width"] - 5, "y": box["height"] - 5})
        details = page.locator("#word-matrix + .details").inner_text()
        assert re.fullmatch(rf"“\.” and “\.”: [{MINUS}\d.]+", details)


def test_keeps_positions_of_non_ascii_words(open_page, url: str) -> None:
    text = "🙂🙂 naïve  cafés — 东京 👩‍👩‍👧"
    with open_page(url) as page:
        fill_pair(page, text, "A naive coffee house in Tokyo")
        first = page.locator("#alignment .sentence").first
        assert first.evaluate("element => element.textContent") == text
        assert {"naïve", "cafés"} <= set(first.locator(".word").all_inner_texts())


def test_markup_stays_text(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, HOSTILE, f"b {HOSTILE}")
        assert page.locator("#alignment .sentence").first.evaluate("e => e.textContent") == HOSTILE
        assert page.locator("main img, main script").count() == 0


def test_content_security_policy_blocks_injected_scripts(open_page, url: str) -> None:
    with open_page(url, expected=("Content Security Policy",)) as page:
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.broken = true";
                document.body.append(script);
            }"""
        )
        page.wait_for_timeout(100)
        assert page.evaluate("window.broken") is None


def test_marks_truncated_text(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, "word " * 300, "short words")
        assert page.locator("#breakdown").inner_text().endswith("256 of 302\t4")
        assert page.locator(".truncated").inner_text().count("word") == 300 - 254


def test_shows_and_clears_errors(open_page, url: str) -> None:
    with open_page(url, expected=("413",)) as page:
        fill_pair(page, *PAIR)
        page.fill("#a", "x" * 3001)
        error = page.locator("#pair .error", has_text="LATTEMIX_MAX_CHARACTERS")
        error.wait_for()
        assert error.inner_text().startswith("pairs[0][0] has 3,001 characters")
        assert page.locator("#pair .results").is_hidden()
        fill_pair(page, *PAIR)
        assert page.locator("#pair .error").inner_text() == ""
        assert page.locator("#pair .results").is_visible()


def test_empty_input_is_not_an_error(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        page.fill("#a", "  ")
        page.locator("#pair .results").wait_for(state="hidden")
        assert page.locator("#pair .error").inner_text() == ""


@pytest.mark.parametrize("fragment", ["tab=toString", "a=%E0%A4%A", "metric=x&a=one&b=two", "#=&&"])
def test_ignores_an_invalid_fragment(open_page, url: str, fragment: str) -> None:
    with open_page(f"{url}/#{fragment}") as page:
        fill_pair(page, *PAIR)
        assert page.locator("#links li").count() > 2


def test_says_when_the_service_is_unreachable(open_page, url: str) -> None:
    with open_page(url, expected=("ERR_FAILED",)) as page:
        fill_pair(page, *PAIR)
        page.route("**/similarity", lambda route: route.abort())
        page.fill("#a", "Another")
        error = page.locator("#pair .error", has_text="cannot be reached")
        error.wait_for()


def test_retries_when_the_service_is_overloaded(open_page, url: str) -> None:
    busy = {"error": "So busy: try again in 1 s.", "error_type": "Overloaded"}
    with open_page(url, expected=("429",)) as page:
        fill_pair(page, *PAIR)
        page.route(
            "**/explain",
            lambda route: route.fulfill(status=429, json=busy, headers={"retry-after": "1"}),
            times=1,
        )
        page.fill("#b", "Something else entirely")
        page.locator("#pair .error", has_text="So busy").wait_for()
        page.locator("#alignment", has_text="entirely").wait_for()
        assert page.locator("#pair .error").inner_text() == ""


def test_url_holds_the_input(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, "Ça & là", "50 % #1")
        open_metrics(page)
        page.check("input[value=js]")
        page.wait_for_url("**metric=js")
        address = page.url
    with open_page(address) as page:
        page.locator("#breakdown th:text-is('js')").wait_for()
        assert [page.input_value("#a"), page.input_value("#b")] == ["Ça & là", "50 % #1"]
        page.click("#swap")
        assert [page.input_value("#a"), page.input_value("#b")] == ["50 % #1", "Ça & là"]


def test_ignores_responses_to_outdated_input(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        delayed = []
        page.route("**/explain", lambda route: delayed.append(route), times=1)  # answered too late
        page.fill("#b", "Too late")
        while not delayed:
            page.wait_for_timeout(20)
        page.fill("#b", "In time")
        page.wait_for_timeout(50)
        with suppress(Error):  # the page aborted it
            delayed[0].continue_()
        wait_until_idle(page)
        assert page.locator("#alignment .sentence").last.inner_text() == "In time"
        page.wait_for_timeout(300)
        assert page.locator("#alignment .sentence").last.inner_text() == "In time"


def test_keeps_input_typed_while_the_page_loads(open_page, url: str) -> None:
    with open_page("about:blank", at=url) as page:
        page.route("**/info", lambda route: (sleep(0.5), route.continue_()))
        page.goto(url)
        page.fill("#a", "My own sentence")  # waits until the field is enabled
        wait_until_idle(page)
        assert page.input_value("#a") == "My own sentence"
        assert page.locator("#alignment .sentence").first.inner_text() == "My own sentence"


def test_retries_while_the_service_starts(open_page, url: str) -> None:
    soon = {"error": "The service is stopping.", "error_type": "Unhealthy"}
    with open_page("about:blank", expected=("503",), at=url) as page:
        answer = {"status": 503, "json": soon, "headers": {"retry-after": "1"}}
        page.route("**/info", lambda route: route.fulfill(**answer), times=1)
        page.goto(url)
        page.locator("#pair .error", has_text="is stopping").wait_for()
        page.locator("#links li").first.wait_for()
        assert page.locator("#pair .error").inner_text() == ""


def test_very_long_words_do_not_widen_the_page(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, "x" * 2900, "y" * 2900)
        page.focus("#word-matrix")
        page.keyboard.press("ArrowRight")
        assert page.locator("#word-matrix + .details").inner_text().startswith("“xxx")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_words_are_one_tab_stop_and_arrow_keys_move_between_them(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        page.locator("#alignment .word", has_text="kid").focus()
        page.keyboard.press("ArrowRight")
        assert "“plays”: contribution" in page.locator("#word-details").inner_text()
        page.keyboard.press("Tab")
        assert "“Children”: contribution" in page.locator("#word-details").inner_text()


def test_moving_the_pointer_sends_few_requests(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        strip = page.locator("#mixtures canvas").first
        for x in range(5, 505, 10):
            strip.hover(position={"x": x, "y": 30})
        page.wait_for_timeout(300)
        assert 1 <= len(requests) < 10
