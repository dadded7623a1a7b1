"""The playground's heat maps: their values as tables, and what a moved threshold redraws."""

from itertools import chain

import httpx
import pytest

from tests.browser.helpers import duplicates, fill_list, fill_pair, upload
from tests.browser.labelled import BINARY, labelled_file

pytestmark = pytest.mark.browser

PAIR = ("A kid plays football outside.", "Children are playing soccer in the garden.")
MINUS = "\u2212"
LINES = [
    "How do I reset my password?",
    "Can I pay by credit card?",
    "Where can I change my password?",
    "Do you accept credit cards?",
    "The sea was calm.",
]


def open_table(page, selector: str) -> list[list[str]]:
    """Open a table and return its cells, the header first."""
    page.click(f"{selector} summary")
    page.locator(f"{selector} tbody tr").first.wait_for()
    rows = page.locator(f"{selector} tr").all()
    return [
        [cell.replace("\u00a0", " ") for cell in row.locator("th, td").all_inner_texts()]
        for row in rows
    ]


def explanation(url: str) -> dict:
    return httpx.post(f"{url}/explain", json={"pair": PAIR}).json()


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", MINUS)


def test_every_heat_map_and_chart_has_a_table(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        fill_list(page, LINES)
        upload(page, labelled_file(BINARY))
        pictures = page.locator("canvas[role], svg[role=img]").all()
        assert len(pictures) == 7
        for picture in pictures:
            assert picture.get_attribute("aria-label")
            details = page.locator(f"#{picture.get_attribute('aria-details')}")
            assert details.locator("table").count() == 1
            assert details.locator("summary").inner_text().endswith(" as a table")


def test_word_similarities_as_a_table(open_page, url: str) -> None:
    expected = explanation(url)
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        header, *rows = open_table(page, "#word-matrix-table")
        assert header == ["word", *(word["text"] for word in expected["b"]["words"])]
        assert rows == [
            [word["text"], *(f"{value:.2f}".replace("-", MINUS) for value in values)]
            for word, values in zip(
                expected["a"]["words"], expected["alignment"]["words"], strict=True
            )
        ]
        fill_pair(page, "One word", PAIR[1])  # the open table follows the input
        assert page.locator("#word-matrix-table tbody tr").count() == 2
        fill_pair(page, "word " * 120, PAIR[1])
        assert page.locator("#word-matrix-table tbody tr").count() == 100
        caption = page.locator("#word-matrix-table caption").inner_text()
        assert caption == "The first 100 words of each sentence"


def test_contributions_as_a_table(open_page, url: str) -> None:
    expected = explanation(url)
    links = {(link["a"], link["b"]): link for link in expected["alignment"]["links"]}
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        header, *rows = open_table(page, "#words-table")
        assert header == ["word", "sentence", "contribution", "aligned with", "similarity"]
        words = expected["a"]["words"] + expected["b"]["words"]
        assert [row[:3:2] for row in rows] == [
            [word["text"], signed(word["contribution"])] for word in words
        ]
        for (a, b), link in links.items():
            texts = [expected[side]["words"][i]["text"] for side, i in (("a", a), ("b", b))]
            similarity = f"{link['similarity']:.3f}"
            assert rows[a][1::2] == ["first", texts[1]]
            assert rows[a][4] == rows[len(expected["a"]["words"]) + b][4] == similarity
        assert sum(row[3] == "none" for row in rows) == len(words) - 2 * len(links)


def test_mixtures_as_a_table(open_page, url: str) -> None:
    body = {"inputs": PAIR, "format": "dense"}
    embeddings = httpx.post(f"{url}/embed", json=body).json()["embeddings"]
    classes = httpx.get(f"{url}/info").json()["classes"]
    with open_page(url) as page:
        fill_pair(page, *PAIR)
        header, *rows = open_table(page, "#mixtures-table")
        assert header == ["dim", "class", "first", "second", "difference"]
        shares = list(zip(*map(chain.from_iterable, embeddings), strict=True))
        assert len(rows) == sum(max(pair) >= 0.1 for pair in shares)
        for dim, index, first, second, difference in rows:
            a, b = shares[int(dim) * classes + int(index)]
            assert (first, second, difference) == (f"{a:.3f}", f"{b:.3f}", signed(a - b))


def test_most_similar_pairs_as_a_table(open_page, url: str) -> None:
    best = httpx.post(f"{url}/matrix", json={"inputs": LINES, "top_k": 3}).json()
    with open_page(url) as page:
        fill_list(page, LINES)
        header, *rows = open_table(page, "#matrix-table")
        assert header == ["rating", "first sentence", "second sentence"]
        assert rows[:3] == [
            [f"{rating:.2f} of 5", LINES[i], LINES[j]]
            for (i, j), rating in zip(best["pairs"], best["ratings"], strict=True)
        ]
        assert page.locator("#matrix-table caption").inner_text() == "All pairs"
        fill_list(page, [f"{line} {i}" for i in range(3) for line in LINES])
        caption = page.locator("#matrix-table caption").inner_text()
        assert caption == "The 100 most similar of 105 pairs"
        assert page.locator("#matrix-table tbody tr").count() == 100


def test_the_matrix_shows_similar_sentences_side_by_side(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_list(page, LINES)
        page.focus("#matrix")
        neighbours = []
        page.keyboard.press("ArrowDown")
        for _ in range(4):
            page.keyboard.press("ArrowRight")
            neighbours.append(page.locator("#matrix + .details").inner_text())
            page.keyboard.press("ArrowDown")
        assert neighbours[0].endswith(f"“{LINES[0]}” and “{LINES[2]}”")
        assert any(LINES[1] in text and LINES[3] in text for text in neighbours)


# Counts what is drawn on canvases and what is added to the page.
WATCH = """() => {
    window.drawn = window.added = 0;
    for (const name of ["putImageData", "drawImage", "fillRect", "fillText"]) {
        const draw = CanvasRenderingContext2D.prototype[name];
        CanvasRenderingContext2D.prototype[name] = function (...args) {
            window.drawn += 1;
            return draw.apply(this, args);
        };
    }
    const elements = (record) => [...record.addedNodes].filter((node) => node.nodeType === 1);
    new MutationObserver((records) => (window.added += records.flatMap(elements).length))
        .observe(document.querySelector("main"), { subtree: true, childList: true });
}"""


def move(page, slider: str, keys: list[str]) -> None:
    page.focus(slider)
    for key in keys:
        page.keyboard.press(key)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def test_a_moved_threshold_redraws_no_cell(open_page, url: str) -> None:
    with open_page(url) as page:
        fill_list(page, LINES)
        page.evaluate(WATCH)
        position = (
            "getComputedStyle(document.querySelector('#list .bar')).getPropertyValue('--mark')"
        )
        marks = [page.evaluate(position)]
        groups = duplicates(page)
        move(page, "#threshold", ["ArrowLeft", "ArrowLeft", "ArrowRight"])
        assert duplicates(page) == groups
        assert page.evaluate("[window.drawn, window.added]") == [0, 0]
        marks.append(page.evaluate(position))
        assert marks[0] != marks[1]
        move(page, "#threshold", ["End"])  # one of two groups remains
        assert len(duplicates(page)) == 1
        assert page.evaluate("[window.drawn, window.added]") == [0, 1]
        page.fill("#lines", "\n".join(LINES[1:]))
        page.locator("#summary", has_text="4 sentences").wait_for()
        assert page.evaluate("window.drawn") > 16  # the counter works


def test_a_moved_threshold_of_labelled_pairs_rebuilds_nothing(open_page, url: str) -> None:
    with open_page(url) as page:
        upload(page, labelled_file(BINARY))
        page.evaluate(WATCH)
        shown = page.locator("#labelled .numbers").inner_text()
        move(page, "#threshold-choice input", ["End", "ArrowLeft", "Home"])
        assert page.locator("#labelled .numbers").inner_text() != shown
        assert page.evaluate("[window.drawn, window.added]") == [0, 0]


def test_default_thresholds_come_from_the_calibration(open_page, url: str) -> None:
    request = {"inputs": LINES, "threshold": 2.5, "threshold_on": "rating"}
    pairs = httpx.post(f"{url}/matrix", json=request).json()["pairs"]
    with open_page(url) as page:
        fill_list(page, LINES)
        origin = page.locator("#threshold-origin")
        assert origin.inner_text() == ("Default threshold: the middle of the model's rating scale.")
        for metric in ("cosine", "js", "l2", "bhattacharyya"):
            page.select_option("#list-metric", metric)
            page.locator("#list:not([aria-busy])").wait_for()
            assert origin.inner_text() == (
                "Default threshold: as many pairs as centred, the calibrated metric, finds at "
                "2.50 of 5."
            )
            groups = [[LINES.index(line) for line in group] for group in duplicates(page)]
            assert groups == pairs, metric
