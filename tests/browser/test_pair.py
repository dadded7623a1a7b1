"""The playground's first tab, as someone who types sees it."""

import re
from contextlib import suppress
from time import sleep

import httpx
import pytest

pytestmark = pytest.mark.browser

PAIR = ("A kid plays football outside.", "Children are playing soccer in the garden.")
MINUS = "\u2212"
Error = pytest.importorskip("playwright.sync_api", reason="see `make test-browser`").Error
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>&amp;'


def typed(page, a: str, b: str) -> None:
    page.fill("#a", a)
    page.fill("#b", b)
    settled(page)


def settled(page) -> None:
    page.locator("#pair:not([aria-busy])").wait_for()


def scores(page) -> dict[str, float]:
    shown = page.locator(".score").all()
    return {
        score.get_attribute("id").removeprefix("score-"): float(
            score.inner_text().replace(MINUS, "-")
        )
        for score in shown
    }


def test_typing_shows_every_metric(opened, url: str) -> None:
    metrics = ["cosine", "js", "l2", "bhattacharyya", "centred"]
    request = {"pairs": [PAIR], "metrics": metrics}
    (expected,) = httpx.post(f"{url}/similarity", json=request).json()["similarities"]
    with opened(url) as page:
        typed(page, *PAIR)
        assert scores(page) == pytest.approx({m: expected[m] for m in metrics}, abs=6e-4)


def test_words_that_meet_are_joined_by_lines(opened, url: str, pictured) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        links = page.locator("#links li").all_inner_texts()
        pairs = {re.sub(rf" [{MINUS}\d.]+$", "", link) for link in links}
        assert {"football ~ soccer", "kid ~ Children", "plays ~ playing"} <= pairs
        assert page.locator("#aligned svg path").count() == len(links)
        assert page.locator("#aligned .word").all_inner_texts()[:3] == ["A", "kid", "plays"]
        football = page.locator("#aligned .word", has_text="football").bounding_box()
        middle = football["x"] + football["width"] / 2
        frame = page.locator("#aligned svg").bounding_box()
        drawn = [path.get_attribute("d") for path in page.locator("#aligned svg path").all()]
        starts = [frame["x"] + float(d.removeprefix("M").split()[0]) for d in drawn]
        assert min(abs(start - middle) for start in starts) < 1
        pictured(page, "pair")


def test_another_metric_is_explained_and_its_parts_add_up(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        for metric in ("cosine", "l2"):
            page.check(f"input[value={metric}]")
            page.wait_for_selector(f"#sums th:text-is('{metric}')")
            rows = page.locator("#sums tr").all_inner_texts()
            cells = {row.split("\t")[0]: row.replace(MINUS, "-").split("\t")[1:] for row in rows}
            shown = scores(page)[metric]
            assert [float(cell) for cell in cells[metric]] == pytest.approx([shown] * 2, abs=2e-3)
            for words, special in zip(cells["words"], cells["special tokens"], strict=True):
                assert float(words) + float(special) == pytest.approx(shown, abs=2e-3)


def test_a_word_tells_what_it_adds(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, "He chewed eatingly", "Someone had lunch")
        page.locator("#aligned .word", has_text="eatingly").focus()
        told = page.locator("#told").inner_text()
        assert re.match(rf"“eatingly” \(eating ##ly\) adds [+{MINUS}]0\.\d{{3}}", told)


def test_shared_meanings_are_told_in_words(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, "A man is eating.", "Someone is having lunch.")
        assert "food" in page.locator("#agree").inner_text()
        assert page.locator("#agree tr").count() == page.locator("#disagree tr").count() == 6


def test_mixtures_can_be_explored_by_keyboard(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        page.locator("#strips canvas").first.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        words = [word["word"] for word in httpx.get(f"{url}/latents/1/1").json()["words"]]
        page.locator("#latent", has_text=", ".join(words)).wait_for()
        assert page.locator("#latent").inner_text().startswith("Variable 1, class 1: first 0.")


def test_the_heat_map_tells_which_words(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        box = page.locator("#alignment").bounding_box()
        page.hover("#alignment", position={"x": box["width"] - 5, "y": box["height"] - 5})
        told = page.locator("#alignment + .told").inner_text()
        assert re.fullmatch(rf"“\.” and “\.”: [{MINUS}\d.]+", told)


def test_what_is_not_plain_letters_stays_in_its_place(opened, url: str) -> None:
    text = "🙂🙂 naïve  cafés — 东京 👩‍👩‍👧"
    with opened(url) as page:
        typed(page, text, "A naive coffee house in Tokyo")
        first = page.locator("#aligned .sentence").first
        assert first.evaluate("element => element.textContent") == text
        assert {"naïve", "cafés"} <= set(first.locator(".word").all_inner_texts())


def test_a_script_stays_text(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, HOSTILE, f"b {HOSTILE}")
        assert page.locator("#aligned .sentence").first.evaluate("e => e.textContent") == HOSTILE
        assert page.locator("main img, main script").count() == 0


def test_the_policy_stops_scripts_that_get_in_nevertheless(opened, url: str) -> None:
    with opened(url, expected=("Content Security Policy",)) as page:
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.broken = true";
                document.body.append(script);
            }"""
        )
        page.wait_for_timeout(100)
        assert page.evaluate("window.broken") is None


def test_a_long_text_says_what_was_not_read(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, "word " * 300, "short words")
        assert page.locator("#sums").inner_text().endswith("256 of 302\t4")
        assert page.locator(".unread").inner_text().count("word") == 300 - 254


def test_errors_are_shown_in_words_and_go_away(opened, url: str) -> None:
    with opened(url, expected=("413",)) as page:
        typed(page, *PAIR)
        page.fill("#a", "x" * 3001)
        error = page.locator("#pair .error", has_text="LATTEMIX_MAX_CHARACTERS")
        error.wait_for()
        assert error.inner_text().startswith("pairs[0][0] has 3,001 characters") or (
            error.inner_text().startswith("pair[0] has 3,001 characters")
        )
        assert page.locator("#pair .results").is_hidden()
        typed(page, *PAIR)
        assert page.locator("#pair .error").inner_text() == ""
        assert page.locator("#pair .results").is_visible()


def test_nothing_typed_is_no_error(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        page.fill("#a", "  ")
        page.locator("#pair .results").wait_for(state="hidden")
        assert page.locator("#pair .error").inner_text() == ""


@pytest.mark.parametrize("fragment", ["tab=toString", "a=%E0%A4%A", "metric=x&a=one&b=two", "#=&&"])
def test_an_odd_address_is_no_trouble(opened, url: str, fragment: str) -> None:
    with opened(f"{url}/#{fragment}") as page:
        typed(page, *PAIR)
        assert page.locator("#links li").count() > 2


def test_a_service_that_is_gone_is_said_to_be(opened, url: str) -> None:
    with opened(url, expected=("ERR_FAILED",)) as page:
        typed(page, *PAIR)
        page.route("**/similarity", lambda route: route.abort())
        page.fill("#a", "Another")
        error = page.locator("#pair .error", has_text="cannot be reached")
        error.wait_for()


def test_it_tries_again_when_the_service_is_busy(opened, url: str) -> None:
    busy = {"error": "So busy: try again in 1 s.", "error_type": "Overloaded"}
    with opened(url, expected=("429",)) as page:
        typed(page, *PAIR)
        page.route(
            "**/explain",
            lambda route: route.fulfill(status=429, json=busy, headers={"retry-after": "1"}),
            times=1,
        )
        page.fill("#b", "Something else entirely")
        page.locator("#pair .error", has_text="So busy").wait_for()
        page.locator("#aligned", has_text="entirely").wait_for()
        assert page.locator("#pair .error").inner_text() == ""


def test_the_address_holds_what_is_typed(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, "Ça & là", "50 % #1")
        page.check("input[value=js]")
        page.wait_for_url("**metric=js")
        address = page.url
    with opened(address) as page:
        page.locator("#sums th:text-is('js')").wait_for()
        assert [page.input_value("#a"), page.input_value("#b")] == ["Ça & là", "50 % #1"]
        page.click("#swap")
        assert [page.input_value("#a"), page.input_value("#b")] == ["50 % #1", "Ça & là"]


def test_only_the_last_of_what_is_typed_counts(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        held = []
        page.route(
            "**/explain", lambda route: held.append(route), times=1
        )  # which is answered when it is too late
        page.fill("#b", "Too late")
        while not held:
            page.wait_for_timeout(20)
        page.fill("#b", "In time")
        page.wait_for_timeout(50)
        with suppress(Error):  # the page has given it up
            held[0].continue_()
        settled(page)
        assert page.locator("#aligned .sentence").last.inner_text() == "In time"
        page.wait_for_timeout(300)
        assert page.locator("#aligned .sentence").last.inner_text() == "In time"


def test_nothing_typed_is_lost_while_the_page_starts(opened, url: str) -> None:
    with opened("about:blank", at=url) as page:
        page.route("**/info", lambda route: (sleep(0.5), route.continue_()))
        page.goto(url)
        page.fill("#a", "My own sentence")  # waits until it can be
        settled(page)
        assert page.input_value("#a") == "My own sentence"
        assert page.locator("#aligned .sentence").first.inner_text() == "My own sentence"


def test_it_waits_for_a_service_that_starts(opened, url: str) -> None:
    soon = {"error": "The service is stopping.", "error_type": "Unhealthy"}
    with opened("about:blank", expected=("503",), at=url) as page:
        answer = {"status": 503, "json": soon, "headers": {"retry-after": "1"}}
        page.route("**/info", lambda route: route.fulfill(**answer), times=1)
        page.goto(url)
        page.locator("#pair .error", has_text="is stopping").wait_for()
        page.locator("#links li").first.wait_for()
        assert page.locator("#pair .error").inner_text() == ""


def test_very_long_words_neither_stop_nor_widen_the_page(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, "x" * 2900, "y" * 2900)
        page.focus("#alignment")
        page.keyboard.press("ArrowRight")
        assert page.locator("#alignment + .told").inner_text().startswith("“xxx")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_words_are_one_stop_and_arrows_go_on_from_there(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        page.locator("#aligned .word", has_text="kid").focus()
        page.keyboard.press("ArrowRight")
        assert "“plays” adds" in page.locator("#told").inner_text()
        page.keyboard.press("Tab")
        assert "“Children” adds" in page.locator("#told").inner_text()


def test_pointing_at_many_classes_asks_about_few(opened, url: str) -> None:
    with opened(url) as page:
        typed(page, *PAIR)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        strip = page.locator("#strips canvas").first
        for x in range(5, 505, 10):
            strip.hover(position={"x": x, "y": 30})
        page.wait_for_timeout(300)
        assert 1 <= len(asked) < 10
