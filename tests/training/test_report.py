from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.head import Floats, Head
from training.evaluate.tables import Table
from training.monitor import Entry
from training.plots import run_plots
from training.report import write_report

HOSTILE = "</title><script src=http://evil.example/x.js></script>\"'>&"
PNG = b"\x89PNG\r\n"


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def images(self) -> list[tuple[str, bytes]]:
        """The text alternative and the content of each image."""
        images = [attributes for tag, attributes in self.tags if tag == "img"]
        prefix = "data:image/png;base64,"
        assert all(str(image["src"]).startswith(prefix) for image in images)
        return [
            (str(i["alt"]), b64decode(str(i["src"]).removeprefix(prefix), validate=True))
            for i in images
        ]


def entry(step: int, **changes: object) -> Entry:
    figures = {"loss": 9.0, "reconstruction": 8.0, "kl": 1.0, "beta": 0.5}
    latent = {"kl_per_dim": [0.1, 0.2, 0.3, 0.4], "dims_in_use": 4.0, "classes_in_use": 4.5}
    return {"step": step, **figures, "tokens_per_second": 100, **latent, **changes}


LOG = [entry(0, dev=50.0), entry(20), entry(39, dev=60.0)]


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering takes seconds."""
    monkeypatch.setattr("training.report.run_plots", lambda *_: [])


@pytest.fixture
def usage(head: Head) -> Floats:
    return np.full((head.spec.latent_dims, head.spec.classes), 0.2, np.float32)


def changed(head: Head, **changes: object) -> Head:
    return Head(head.spec.model_copy(update=changes), head.tensors)


def test_page_is_self_contained(head: Head, usage: Floats, tmp_path: Path) -> None:
    results = [Table("Spearman x100", ["dev"], [["pooling, mean", "61.00"]])]
    write_report(tmp_path, head, "CC0", LOG, usage, results, mean_pooling=61.0)
    page = Page(tmp_path / "report.html")
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object", "base"})
    assert not any("href" in attributes or "srcset" in attributes for _, attributes in page.tags)
    text = (tmp_path / "report.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert "url(" not in text
    images = page.images()
    assert len(images) == 8
    assert all(content.startswith(PNG) for _, content in images)
    assert "Dev score, Spearman x100. dev: 50.0 at step 0, 60.0 at step 39." in dict(images)
    assert (tmp_path / "report.png").read_bytes().startswith(PNG)


@pytest.mark.usefixtures("no_plots")
def test_page_names_backbone_corpus_and_settings(head: Head, usage: Floats, tmp_path: Path) -> None:
    results = [Table("Spearman x100", ["dev"], [["pooling, mean", "61.00"]])]
    write_report(tmp_path, head, "CC0", LOG, usage, results)
    text = Page(tmp_path / "report.html").text
    assert head.spec.backbone.name in text
    assert "ten sentences written for the tests. Licence of the data: CC0." in text
    settings = [name for name, value in head.spec.recipe.items() if value is not None]
    for part in (*settings, *head.spec.training, "pooling, mean", "61.00"):
        assert part in text


@pytest.mark.usefixtures("no_plots")
def test_escapes_text_from_users(head: Head, usage: Floats, tmp_path: Path) -> None:
    directory = tmp_path / HOSTILE.replace("/", "")
    directory.mkdir()
    backbone = head.spec.backbone.model_copy(update={"name": HOSTILE})
    results = [Table(HOSTILE, [HOSTILE], [[HOSTILE, HOSTILE]])]
    hostile = changed(head, corpus=HOSTILE, backbone=backbone)
    write_report(directory, hostile, HOSTILE, LOG, usage, results)
    page = Page(directory / "report.html")
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(HOSTILE) == 7  # backbone, corpus, licence, four cells of the table
    assert directory.name in page.text


@pytest.mark.usefixtures("no_plots")
def test_page_says_whether_the_latent_collapsed(head: Head, usage: Floats, tmp_path: Path) -> None:
    for in_use, expected in [
        (4.0, "The latent did not collapse: at the end 4 of 4 latent dims carry information"),
        (
            1.0,
            "Warning: the latent collapsed. At the end only 1 of 4 latent dims carry information",
        ),
    ]:
        finished = changed(head, training={"dims_in_use": in_use})
        write_report(tmp_path, finished, "CC0", LOG, usage)
        text = Page(tmp_path / "report.html").text
        assert expected in text
        assert ("collapsed." in text) == (in_use < 2)


@pytest.mark.parametrize(
    ("model", "missing", "count"),
    [
        ("normal", {"classes_in_use"}, 6),
        ("autoencoder", {"classes_in_use", "kl_per_dim", "dims_in_use"}, 2),
    ],
)
def test_baselines_have_fewer_plots(head: Head, model: str, missing: set[str], count: int) -> None:
    log = [{key: entry[key] for key in entry if key not in missing} for entry in LOG]
    assert len(run_plots(log, changed(head, model=model).spec, None, None)) == count


@pytest.mark.usefixtures("no_plots")
def test_page_of_an_autoencoder_has_no_verdict(head: Head, tmp_path: Path) -> None:
    write_report(tmp_path, changed(head, model="autoencoder", training={}), "CC0", LOG, None)
    page = Page(tmp_path / "report.html")
    assert "verdict" not in {attributes.get("class") for _, attributes in page.tags}


def test_dev_scores_that_are_all_null_have_no_plot(head: Head, usage: Floats) -> None:
    titles = [plot.title for plot in run_plots([entry(0, dev=None)], head.spec, usage, None)]
    assert len(titles) == 7
    assert "Dev score, Spearman x100" not in titles


def test_page_of_a_run_without_log_entries(head: Head, usage: Floats, tmp_path: Path) -> None:
    write_report(tmp_path, head, "CC0", [], usage)
    page = Page(tmp_path / "report.html")
    assert page.images() == []
    assert "Not evaluated" in page.text
