"""Files of labelled pairs in the playground: CSV, TSV, dropped files, and invalid rows."""

import pytest

from tests.browser.helpers import upload
from tests.browser.labelled import BINARY, labelled_file, raw_file

pytestmark = pytest.mark.browser

HEADER = "a,b,label\n"
HOSTILE = "<img src=x onerror=alert(1)>.csv"


def error(page) -> str:
    return page.locator("#labelled .error").inner_text()


def sent_pairs(page, file) -> list[list[str]]:
    """Pairs that the page sends for a file."""
    with page.expect_request("**/similarity") as request:
        page.set_input_files("#file", file)
    return request.value.post_data_json["pairs"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        pytest.param('a,b,label\n"x, y","say ""no""",1', [["x, y", 'say "no"']], id="quotes"),
        pytest.param('a,b,label\r\n"one\r\ntwo",b,1\r\n', [["one\r\ntwo", "b"]], id="newline"),
        pytest.param("\ufeffa,b,label\nx,y,1\n", [["x", "y"]], id="byte order mark"),
        pytest.param("a,b,label\n\nx,y,1\n\n\nz,w,0\n", [["x", "y"], ["z", "w"]], id="empty lines"),
        pytest.param("a,b,label\rx,y,1\rz,w,0", [["x", "y"], ["z", "w"]], id="carriage returns"),
        pytest.param("id,label,B,A\n7,true,y,x\n", [["x", "y"]], id="order of columns"),
        pytest.param('a\tb\tlabel\n"x", y\tz\t1\n', [['"x", y', "z"]], id="TSV"),
        pytest.param(
            'a,b,label\n5" disk,naïve 東京 🙂,1\n', [['5" disk', "naïve 東京 🙂"]], id="inner quote"
        ),
        pytest.param('"a","b","label"\nx,y,1e0\n', [["x", "y"]], id="quoted header"),
    ],
)
def test_reads_csv_and_tsv(open_page, url: str, text: str, pairs) -> None:
    with open_page(url, expected=("400",)) as page:  # too few pairs
        page.locator("#file:enabled").wait_for(state="attached")
        page.click("#tab-labelled")
        assert sent_pairs(page, raw_file(text)) == pairs
        page.locator("#labelled:not([aria-busy])").wait_for()
        assert error(page).endswith("at least 20 are needed.")


NEEDED = "pairs.csv needs a header with the columns a, b, label or sentence1, sentence2, label; "
INVALID = [
    ("", f"{NEEDED}it is empty."),
    ("x,y,1\n", f"{NEEDED}its first line is “x, y, 1”."),
    ("a;b;label\nx;y;1\n", f"{NEEDED}its first line is “a;b;label”."),
    (HEADER, "pairs.csv has a header, but no pairs."),
    (HEADER + 'x,"y,1\nz,w,0', "Line 2: a quote is not closed."),
    (HEADER + 'x,"y" z,1\n', "Line 2: text follows a closing quote."),
    (
        HEADER + '"two\nlines",y,1\nx,,0\nx,y\nx,y,yes\n',
        "pairs.csv: 3 rows cannot be used: line 4: the second sentence is empty; "
        "line 5: expected 3 columns, found 2; line 6: label “yes” is not a number.",
    ),
    (
        HEADER + "x,y,\n" * 7,
        "pairs.csv: 7 rows cannot be used: "
        + "; ".join(f"line {line}: label “” is not a number" for line in range(2, 7))
        + "; ….",
    ),
    (
        HEADER + "x,y,0x1\n",
        "pairs.csv: 1 row cannot be used: line 2: label “0x1” is not a number.",
    ),
    (
        HEADER + f"x,{'y' * 3001},1\n",
        "pairs.csv: 1 row cannot be used: line 2: the second sentence has 3,001 characters, "
        "more than the server's 3,000.",
    ),
    (
        HEADER + "x,y,1\n" * 100_001,
        "pairs.csv has more than 100,000 pairs: use a sample of them.",
    ),
    (b"a,b,label\n\xff\xfe,y,1\n", "pairs.csv is not UTF-8 text: save it as CSV in UTF-8."),
]


@pytest.mark.parametrize(("content", "message"), INVALID, ids=range(len(INVALID)))
def test_says_what_is_wrong_with_a_file(open_page, url: str, content, message: str) -> None:
    with open_page(url) as page:
        upload(page, raw_file(content))
        assert error(page) == message
        assert page.locator("#labelled .results").is_hidden()
        assert page.locator("#scoring").is_hidden()


def test_a_valid_file_clears_the_error(open_page, url: str) -> None:
    with open_page(url) as page:
        upload(page, raw_file("nothing"))
        assert error(page)
        upload(page, labelled_file(BINARY))
        assert error(page) == ""
        assert page.locator("#agreement td").count()


def test_an_error_of_the_server_names_the_line(open_page, url: str) -> None:
    with open_page("about:blank", at=url, expected=("413",)) as page:
        page.route(
            "**/info*",
            lambda route: route.fulfill(json=route.fetch().json() | {"max_characters": 10**6}),
        )
        page.goto(url)
        upload(page, labelled_file([*BINARY, ("x", "y" * 3001, 1)]))
        assert error(page).startswith("The second sentence of line 32 has 3,001 characters")


def test_markup_stays_text(open_page, url: str) -> None:
    with open_page(url) as page:
        upload(page, raw_file("<b>x</b>\n", name=HOSTILE))
        assert error(page).startswith(f"{HOSTILE} needs a header")
        upload(page, labelled_file(BINARY, name=HOSTILE))
        assert page.locator("#labelled-summary").inner_text().startswith(f"{HOSTILE}: 30 pairs")
        assert page.locator("#labelled :is(img, b)").count() == 0


DROP = """([text, selector]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], "dropped.csv", { type: "text/csv" }));
    for (const type of ["dragover", "drop"]) {
        const init = { dataTransfer: transfer, bubbles: true, cancelable: true };
        const event = new DragEvent(type, init);
        document.querySelector(selector).dispatchEvent(event);
        if (!event.defaultPrevented) throw new Error(`${type} is left to the browser`);
    }
}"""


def test_accepts_a_dropped_file(open_page, url: str) -> None:
    text = labelled_file(BINARY)["buffer"].decode()
    with open_page(f"{url}/#tab=labelled") as page:
        page.locator("#file:enabled").wait_for()
        page.evaluate(DROP, [text, "#labelled > .quiet"])  # beside the zone: ignored
        page.wait_for_timeout(100)
        assert page.locator("#labelled").get_attribute("aria-busy") is None
        page.evaluate(DROP, [text, "#drop"])
        page.locator("#labelled-summary", has_text="dropped.csv: 30 pairs").wait_for()
        assert page.evaluate("document.querySelector('#drop').className") == ""
        assert page.input_value("#file").endswith("dropped.csv")
