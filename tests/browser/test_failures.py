"""The playground when requests fail or responses are malformed: it says so, and goes on."""

import pytest

from model_store import Store
from tests.app.conftest import serving
from tests.browser.helpers import fill_list, fill_pair, upload
from tests.browser.labelled import BINARY, labelled_file

pytestmark = pytest.mark.browser

PAIR = ("A man is eating.", "Someone is having lunch.")
LINES = ["How do I reset my password?", "Where can I change my password?", "The sea was calm."]
# Logged by the browser or, for unexpected errors, by the page.
EXPECTED = ("ERR_FAILED", "Error", "500")
NO_JSON = {"status": 200, "content_type": "text/html", "body": "<html>Please log in</html>"}
FAILURES = {
    "unreachable": None,
    "html": NO_JSON,
    "server error": {"status": 500, "body": "oops"},
    "empty object": {"json": {}},
    "null": {"json": None},
    "wrong types": {
        "json": {"similarities": [None], "embeddings": ["?"], "a": 1, "b": [], "agreement": 5}
    },
}


def respond(page, path: str, failure: dict | None) -> None:
    """Fail all requests to a path from now on."""
    page.route(path, lambda route: route.fulfill(**failure) if failure else route.abort())


def assert_idle_with_error(page, tab: str) -> None:
    page.locator(f"#{tab} .error:not(:empty)").wait_for()
    page.locator(f"#{tab}:not([aria-busy])").wait_for()
    assert len(page.locator(f"#{tab} .error").inner_text()) > len("Try again")
    assert page.locator(f"#{tab} .results").is_hidden()
    assert page.locator(":disabled").count() == 0


@pytest.mark.parametrize(
    ("path", "failure"),
    [
        *(pytest.param("explain", failure, id=name) for name, failure in FAILURES.items()),
        pytest.param("similarity", FAILURES["wrong types"], id="scores"),
        pytest.param("embed", FAILURES["wrong types"], id="mixtures"),
    ],
)
def test_a_failing_pair_can_be_tried_again(open_page, url: str, path: str, failure) -> None:
    with open_page(url, expected=EXPECTED) as page:
        fill_pair(page, *PAIR)
        respond(page, f"**/{path}", failure)
        page.click("#swap")
        assert_idle_with_error(page, "pair")
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        page.locator("#links li").first.wait_for()
        page.locator("#pair:not([aria-busy])").wait_for()
        assert page.locator("#pair .error").inner_text() == ""


@pytest.mark.parametrize(
    "failure",
    [*FAILURES.values(), {"body": b"\x93NUMPY\x01"}, {"body": b"\x93NUMPY\x01\0\x02\0{}123"}],
    ids=[*FAILURES.keys(), "no data", "odd data"],
)
def test_a_failing_list_can_be_tried_again(open_page, url: str, failure) -> None:
    with open_page(url, expected=EXPECTED) as page:
        fill_list(page, LINES)
        respond(page, "**/matrix", failure)
        page.select_option("#list-metric", "js")
        assert_idle_with_error(page, "list")
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        page.locator("#duplicates li").first.wait_for()
        assert page.locator("#list .error").inner_text() == ""


@pytest.mark.parametrize(
    ("path", "failure"),
    [
        *(pytest.param("evaluate", failure, id=name) for name, failure in FAILURES.items()),
        pytest.param("similarity", FAILURES["unreachable"], id="scoring is unreachable"),
        pytest.param("similarity", FAILURES["empty object"], id="no scores"),
    ],
)
def test_failing_labelled_pairs_can_be_tried_again(open_page, url: str, path, failure) -> None:
    with open_page(f"{url}/#tab=labelled", expected=EXPECTED) as page:
        page.locator("#file:enabled").wait_for()
        respond(page, f"**/{path}", failure)
        page.set_input_files("#file", labelled_file(BINARY))
        assert_idle_with_error(page, "labelled")
        if path == "similarity":
            assert page.locator("#scoring button").inner_text() == "Continue"
        page.unroute_all()
        upload(page, labelled_file(BINARY))
        assert page.locator("#agreement td").count()
        assert page.locator("#labelled .error").inner_text() == ""
        assert page.locator("#scoring").is_hidden()


@pytest.mark.parametrize(
    ("tab", "failure"),
    [
        *(pytest.param("list", failure, id=name) for name, failure in FAILURES.items()),
        pytest.param("pair", FAILURES["unreachable"], id="pair"),
    ],
)
def test_a_page_that_failed_to_load_can_be_tried_again(open_page, url: str, tab, failure) -> None:
    with open_page("about:blank", expected=EXPECTED, at=url) as page:
        respond(page, "**/info*", failure)
        page.goto(f"{url}/#tab={tab}")
        page.locator("#pair .error:not(:empty)").wait_for()
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        page.locator(f"#{tab}:not([aria-busy]) .results:visible").wait_for()
        assert page.locator(".error:not(:empty)").count() == 0
        assert page.locator("#mixtures figure").count() == 3


@pytest.mark.parametrize("name", ["unreachable", "null"])
def test_a_failing_change_of_the_model_keeps_the_model(
    open_page, two_models: str, name: str
) -> None:
    with open_page(two_models, expected=EXPECTED) as page:
        page.locator("#links li").first.wait_for()
        respond(page, "**/info*", FAILURES[name])
        page.select_option("#models select", "fast")
        page.locator("#toast", has_text="The model was not changed: ").wait_for()
        assert page.input_value("#models select") == "default"
        with page.expect_request("**/similarity") as request:
            page.click("#swap")
        assert request.value.post_data_json["model"] in (None, "default")
        page.unroute_all()
        with page.expect_request("**/similarity") as request:
            page.select_option("#models select", "fast")
        assert request.value.post_data_json["model"] == "fast"


def test_the_model_chosen_last_is_used(open_page, two_models: str) -> None:
    with open_page(f"{two_models}/#model=fast") as page:
        page.locator("#links li").first.wait_for()
        held: list = []
        page.route("**/info?model=default", lambda route: held.append(route))
        page.select_option("#models select", "default")
        while not held:
            page.wait_for_timeout(20)
        with page.expect_request("**/similarity") as request:
            page.select_option("#models select", "fast")
        assert request.value.post_data_json["model"] == "fast"
        held[0].continue_()
        page.wait_for_timeout(300)
        assert page.input_value("#models select") == "fast"
        assert page.locator("#model").inner_text().startswith("fast,")


def test_a_failure_while_words_of_a_class_load_is_not_shown(open_page, url: str) -> None:
    with open_page(url, expected=EXPECTED) as page:
        fill_pair(page, *PAIR)
        respond(page, "**/latents/**", {"json": {}})
        page.locator("#mixtures canvas").first.focus()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(300)
        assert page.locator("#class-details").inner_text().startswith("Dim 0, class 0: first 0.")
        assert page.locator("#pair .error").inner_text() == ""


@pytest.fixture(scope="module")
def two_models(default_store: Store):
    """URL of a server with two models."""
    with serving(default_store, models="default,fast") as (_, url):
        yield url


EMPTY = "Enter two sentences to compare them."
LIST = "Enter two or more sentences, one per line."


def test_says_which_sentence_is_missing(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        hint = page.locator("#pair .hint")
        for pair, message in [
            (("", " "), EMPTY),
            ((PAIR[0], "\n"), "Enter a second sentence to compare both."),
            (("", PAIR[1]), "Enter a first sentence to compare both."),
            (PAIR, ""),
        ]:
            fill_pair(page, *pair)
            assert hint.inner_text() == message
            assert page.locator("#pair .results").is_visible() == (message == "")
            assert page.locator("#pair .error").inner_text() == ""


def test_says_how_many_lines_a_list_needs(open_page, url: str) -> None:
    with open_page(url) as page:
        hint = page.locator("#list .hint")
        one = "Enter at least one more sentence, on a line of its own."
        for lines, message in ([], LIST), (["", "  "], LIST), (LINES[:1], one), (LINES, ""):
            fill_list(page, lines)
            assert hint.inner_text() == message
            assert page.locator("#list .results").is_visible() == (message == "")


def test_asks_for_a_file(open_page, url: str) -> None:
    with open_page(f"{url}/#tab=labelled") as page:
        page.locator("#labelled .hint", has_text="Choose a file to see results.").wait_for()
        upload(page, labelled_file([]))
        assert page.locator("#labelled .error").inner_text() == (
            "pairs.csv has a header, but no pairs."
        )
        assert page.locator("#labelled .hint").inner_text() == ""
