"""Scoring labelled pairs in the playground: batches, retries, and aborted runs."""

import json

import pytest

from tests.browser.helpers import change_info, requests, upload
from tests.browser.labelled import BINARY, labelled_file

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("changes", "largest"),
    [({"max_client_batch_size": 9}, 4), ({"max_body_bytes": 900}, 7), ({}, 30)],
)
def test_requests_are_within_the_servers_limits(open_page, url: str, changes, largest) -> None:
    with open_page("about:blank", at=url) as page:
        change_info(page, **changes)
        page.goto(url)
        with requests(page, "/similarity") as bodies:
            upload(page, labelled_file(BINARY))
        sent = [tuple(pair) for body in bodies for pair in body["pairs"]]
        assert sent[-30:] == [(a, b) for a, b, _ in BINARY]
        sizes = [len(body["pairs"]) for body in bodies]
        assert max(sizes) <= largest
        if "max_body_bytes" in changes:
            assert max(len(json.dumps(body).encode()) for body in bodies) <= 900


def test_continues_after_429(open_page, url: str) -> None:
    busy = {"error": "So busy: try again in 1 s.", "error_type": "Overloaded"}
    with open_page("about:blank", expected=("429",), at=url) as page:
        change_info(page, max_client_batch_size=40)
        page.goto(f"{url}/#tab=labelled")
        page.locator("#file:enabled").wait_for()
        seen: list[list] = []

        def similarity(route) -> None:
            seen.append(route.request.post_data_json["pairs"])
            if len(seen) == 2:
                route.fulfill(status=429, json=busy, headers={"retry-after": "1"})
            else:
                route.continue_()

        page.route("**/similarity", similarity)
        page.set_input_files("#file", labelled_file(BINARY))
        page.locator("#labelled .error", has_text="So busy").wait_for()
        assert page.locator("#scoring [role=status]").inner_text() == "20 of 30 pairs scored"
        page.locator("#agreement td").first.wait_for()
        assert page.locator("#labelled .error").inner_text() == ""
        assert [len(pairs) for pairs in seen] == [20, 10, 10]
        assert page.locator("#labelled").get_attribute("aria-busy") is None


def test_stops_and_continues(open_page, url: str) -> None:
    with open_page("about:blank", expected=("ERR_FAILED",), at=url) as page:
        change_info(page, max_client_batch_size=40)
        page.goto(f"{url}/#tab=labelled")
        page.locator("#file:enabled").wait_for()
        sizes: list[int] = []
        held: list = []

        def similarity(route) -> None:
            sizes.append(len(route.request.post_data_json["pairs"]))
            if len(sizes) == 2:
                held.append(route)
            elif len(sizes) == 3:
                route.abort()
            else:
                route.continue_()

        page.route("**/similarity", similarity)
        page.set_input_files("#file", labelled_file(BINARY))
        while not held:
            page.wait_for_timeout(20)
        page.get_by_role("button", name="Stop").click()
        assert page.locator("#labelled").get_attribute("aria-busy") is None
        page.get_by_role("button", name="Continue").click()
        page.locator("#labelled .error", has_text="cannot be reached").wait_for()
        assert page.locator("#labelled").get_attribute("aria-busy") is None
        page.get_by_role("button", name="Continue").click()
        page.locator("#agreement td").first.wait_for()
        assert sizes == [20, 10, 10, 10]
        assert page.locator("#scoring").is_hidden()


def test_a_new_file_aborts_the_previous_one(open_page, url: str) -> None:
    with open_page(f"{url}/#tab=labelled") as page:
        page.locator("#file:enabled").wait_for()
        held: list = []
        page.route("**/similarity", lambda route: held.append(route), times=1)
        page.set_input_files("#file", labelled_file(BINARY, name="old.csv"))
        while not held:
            page.wait_for_timeout(20)
        upload(page, labelled_file(BINARY[5:25], name="new.csv"))
        assert page.locator("#labelled-summary").inner_text().startswith("new.csv: 20 pairs")


def test_a_replaced_model_is_an_error(open_page, url: str) -> None:
    with open_page("about:blank", at=url) as page:
        change_info(page, fingerprint="000000000000")
        page.goto(url)
        upload(page, labelled_file(BINARY))
        assert page.locator("#labelled .error").inner_text().startswith("The model was replaced")
        assert page.locator("#labelled .results").is_hidden()
