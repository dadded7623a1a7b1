"""The playground's labelled pairs tab: results, the threshold, and requests."""

import json
import re
import shutil
from pathlib import Path

import httpx
import pytest

from lattemix.labelled.calibrate import publish
from model_store import Store
from model_store.calibration import calibration_of
from tests.app.conftest import serving
from tests.browser.helpers import requests, upload
from tests.browser.labelled import BINARY, RATED, labelled_file

pytestmark = pytest.mark.browser

LABELS = [label for _, _, label in BINARY]


def text(page, selector: str) -> str:
    return page.locator(f"#labelled {selector}").inner_text().replace("\u00a0", " ")


def table(page, selector: str) -> list[list[str]]:
    """Cells of a table's body."""
    rows = page.locator(f"#labelled {selector} tbody tr").all()
    return [
        [
            cell.split("\n")[0].replace("\u00a0", " ")
            for cell in row.locator("th, td").all_inner_texts()
        ]
        for row in rows
    ]


def scores_of(url: str, metric: str = "centred") -> list[float]:
    pairs = [[a, b] for a, b, _ in BINARY]
    body = {"pairs": pairs, "metrics": [metric]}
    rows = httpx.post(f"{url}/similarity", json=body).json()["similarities"]
    return [round(row[metric], 6) for row in rows]


def test_shows_agreement_with_binary_labels(open_page, url: str, screenshot) -> None:
    request = {"scores": scores_of(url), "labels": LABELS, "metric": "centred"}
    expected = httpx.post(f"{url}/evaluate", json=request).json()["agreement"]
    with open_page(url) as page, requests(page, "/evaluate") as bodies:
        upload(page, labelled_file(BINARY))
        summary = "pairs.csv: 30 pairs, 50.0 % of them matches. Scores of centred, model default."
        assert text(page, "#labelled-summary") == summary
        names = {"auc": "AUC", "average_precision": "Average precision", "spearman": "Spearman"}
        assert table(page, "#agreement") == [
            [name, f"{estimate['value']:.3f}", f"{estimate['low']:.3f} to {estimate['high']:.3f}"]
            for key, name in names.items()
            for estimate in [expected[key]]
        ]
        (body,) = bodies
        assert body["scores"] == pytest.approx(request["scores"], abs=1e-9)
        assert body["labels"] == LABELS
        assert "cannot be compared with these labels" in text(page, "#reliability .note")
        assert text(page, "#use-calibration code") == "lattemix calibrate pairs.csv --out NAME"
        screenshot(page, "labelled")


def test_shows_the_reliability_of_ratings(open_page, url: str) -> None:
    labels = [rating for _, _, rating in RATED]
    request = {"scores": scores_of(url), "labels": labels, "scale": [0, 5]}
    check = httpx.post(f"{url}/evaluate", json=request).json()["calibration"]
    with open_page(url) as page:
        upload(page, labelled_file(RATED, header=("Sentence1", "sentence2", "LABEL")))
        assert [page.input_value("#scale-low"), page.input_value("#scale-high")] == ["0", "5"]
        note = f"On these pairs, the model's rating is off by {5 * check['error']:.2f} on average."
        assert text(page, "#reliability .note").startswith(note)
        page.click("#reliability summary")
        assert table(page, "#reliability table") == [
            [f"{5 * bin['predicted']:.2f}", f"{5 * bin['observed']:.2f}", str(bin["pairs"])]
            for bin in check["bins"]
        ]
        assert page.locator("#reliability circle").count() == len(check["bins"])
        command = "lattemix calibrate pairs.csv --scale=0,5 --out NAME"
        assert text(page, "#use-calibration code") == command


def test_shows_the_reliability_of_probabilities(
    open_page, default_store: Store, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    shutil.copytree(default_store.root / "fast", tmp_path / "fast")
    artifact = store.open("fast")
    rating = calibration_of(artifact)
    values = tuple(value / 5 for value in rating.values)
    changes = {"kind": "probability", "scale": (0.0, 1.0), "values": values}
    publish(store, artifact, "support", rating.model_copy(update=changes))
    with serving(store, "support") as (_, url), open_page(url) as page:
        page.locator("#meaning .words", has_text="likely a match").wait_for()
        upload(page, labelled_file(BINARY))
        assert page.locator("#reliability .diagonal").count() == 1
        note = r"On these pairs, the model's probability is off by \d+\.\d percentage points"
        assert re.match(note, text(page, "#reliability .note"))
        assert re.fullmatch(r"\d+ %", dict(table(page, ".numbers"))["Probability"])
        page.click("#tab-list")
        page.locator("#threshold-value", has_text="50\u00a0% (centred 0.").wait_for()


def test_ratings_are_matches_from_a_chosen_label(open_page, url: str) -> None:
    with open_page(url, expected=("400",)) as page:
        upload(page, labelled_file(RATED))
        assert "50.0 % of them matches (label 2.5 or more)" in text(page, "#labelled-summary")
        with requests(page, "/similarity") as bodies:
            page.fill("#match-label", "4.5")
            page.locator("#labelled-summary", has_text="(label 4.5 or more)").wait_for()
            assert table(page, "#agreement")[0][0] == "AUC"
            page.fill("#match-label", "5")
            page.locator("#threshold-problem", has_text="at least 5 are needed").wait_for()
            assert page.locator("#threshold-choice").is_hidden()
            assert table(page, "#agreement")[0][0] == "Spearman"
            page.fill("#match-label", "")
            page.locator("#labelled .error", has_text="Enter the lowest rating").wait_for()
            page.fill("#match-label", "3")
            page.fill("#scale-high", "4.5")
            error = page.locator("#labelled .error", has_text="line 3: label 4.8 is outside")
            error.wait_for()
            assert error.inner_text().endswith("the scale from 0 to 4.5.")
            page.fill("#scale-high", "")
            page.locator("#labelled .error", has_text="must be below its highest").wait_for()
        assert bodies == []  # the scores are kept


def test_slider_chooses_a_threshold(open_page, url: str) -> None:
    request = {"scores": scores_of(url), "labels": LABELS, "metric": "centred"}
    curve = httpx.post(f"{url}/evaluate", json=request).json()["curve"]
    with open_page(url) as page:
        upload(page, labelled_file(BINARY))
        page.locator("#threshold-choice input").focus()
        for key, point in ("End", curve[0]), ("Home", curve[-1]), ("ArrowRight", curve[-2]):
            page.keyboard.press(key)
            rows = dict(table(page, ".numbers"))
            assert rows["Precision"] == f"{100 * point['precision']:.1f} %"
            assert rows["Recall"] == f"{100 * point['recall']:.1f} %"
            assert rows["Rating"].endswith(" of 5")
            body = json.loads(text(page, "#use-threshold code").partition(" -d ")[2].strip("'"))
            assert body["metric"] == "centred"
            assert point["threshold"] - 1e-4 <= body["threshold"] <= point["threshold"]
        assert httpx.post(f"{url}/matrix", json=body).status_code == 200
        value = page.locator("#threshold-choice input").get_attribute("aria-valuetext")
        assert value.replace("\u00a0", " ").endswith("%")
        page.click("#threshold-choice summary")
        assert len(table(page, "#threshold-choice figure table")) == 20


def test_another_metric_needs_no_new_scores(open_page, url: str) -> None:
    with open_page(url) as page:
        upload(page, labelled_file(BINARY))
        with requests(page, "/similarity") as scored, requests(page, "/evaluate") as evaluated:
            page.select_option("#labelled-metric", "js")
            page.locator("#labelled-summary", has_text="Scores of js").wait_for()
        assert scored == []
        assert evaluated[0]["scores"] == pytest.approx(scores_of(url, "js"), abs=2e-6)
        assert "Rating" not in dict(table(page, ".numbers"))
        page.wait_for_url("**tab=labelled&metric=js")


def test_another_model_scores_again(open_page, default_store: Store) -> None:
    with serving(default_store, models="default,fast") as (_, url), open_page(url) as page:
        upload(page, labelled_file(BINARY, name="my pairs.csv"))
        with requests(page, "/similarity") as bodies:
            page.select_option("#models select", "fast")
            page.locator("#labelled-summary", has_text="model fast").wait_for()
        assert [body["model"] for body in bodies] == ["fast"]
        command = "lattemix calibrate 'my pairs.csv' --model fast --out NAME"
        assert text(page, "#use-calibration code") == command
        assert '"model":"fast"' in text(page, "#use-threshold code")
        with requests(page, "/similarity") as bodies:
            page.click("#tab-list")
            page.click("#tab-labelled")
            page.wait_for_timeout(200)
        assert bodies == []


def test_stores_nothing_and_copies_the_commands(open_page, url: str) -> None:
    with open_page(url, permissions=["clipboard-read", "clipboard-write"]) as page:
        upload(page, labelled_file(BINARY))
        for block in ("#use-threshold", "#use-calibration"):
            page.click(f"{block} button")
            page.locator("#toast", has_text="Command copied.").wait_for()
            copied = page.evaluate("navigator.clipboard.readText()")
            assert copied == page.locator(f"{block} code").inner_text()
        stored = "[localStorage.length, sessionStorage.length, document.cookie]"
        assert page.evaluate(stored) == [0, 0, ""]
        page.wait_for_url("**tab=labelled**")
        page.reload()
        page.locator("#file:enabled").wait_for()
        assert page.locator("#labelled .results").is_hidden()
