"""The playground's "Copy as curl" and "Copy as Python": the commands return what the page shows."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from model_store import Store
from tests.app.conftest import serving
from tests.browser.helpers import fill_list, fill_pair, upload
from tests.browser.labelled import BINARY, RATED, labelled_file, raw_file

pytestmark = pytest.mark.browser

CLIPBOARD = ["clipboard-read", "clipboard-write"]
HARD = ('Él dijo: "it\'s $5" `date` !! \\n \\\\ ${HOME}\n🙂 第二', "'; echo \\u0027 'quoted' #")
LINES = ['It\'s "free"!', "It's 'free'.", "$HOME & `pwd` \\", "Die Sonne scheint 🙂"]


def copied(page, selector: str) -> str:
    page.click(selector)
    page.locator("#toast", has_text="Copied the").wait_for()
    return page.evaluate("navigator.clipboard.readText()")


def run_shell(command: str, shell: str = "bash", **options) -> list[dict]:
    """Run curl commands in a shell; return the JSON that they print."""
    if shutil.which("curl") is None:
        pytest.skip("There is no curl.")
    done = subprocess.run(
        [shell, "-c", command], capture_output=True, text=True, timeout=60, **options
    )
    assert done.returncode == 0, done.stderr
    answers, text = [], done.stdout
    while text:
        answer, end = json.JSONDecoder().raw_decode(text)
        answers.append(answer)
        text = text[end:].lstrip()
    return answers


def run_python(program: str, **options) -> list[dict]:
    """Run a Python program; return the dictionaries that it prints."""
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=60, **options
    )
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_curl_returns_the_scores_of_the_pair(open_page, url: str, shell: str) -> None:
    with open_page(url, permissions=CLIPBOARD) as page:
        fill_pair(page, *HARD)
        (answer,) = run_shell(copied(page, "#pair .copies .curl"), shell)
        (row,) = answer["similarities"]
        page.click("#metrics summary")
        for metric in ("centred", "cosine"):
            assert page.locator(f"#score-{metric}").inner_text() == f"{row[metric]:.3f}"
        assert page.locator("#meaning .value").inner_text() == f"{row['rating']:.1f} of 5"


def test_python_returns_the_scores_of_the_pair(open_page, url: str) -> None:
    with open_page(url, permissions=CLIPBOARD) as page:
        fill_pair(page, *HARD)
        (answer,) = run_python(copied(page, "#pair .copies .python"))
        (row,) = answer["similarities"]
        assert page.locator("#meaning .value").inner_text() == f"{row['rating']:.1f} of 5"


def test_both_return_the_explanation(open_page, url: str) -> None:
    with open_page(f"{url}/#metric=cosine", permissions=CLIPBOARD) as page:
        fill_pair(page, *HARD)
        (answer,) = run_shell(copied(page, "#explain-tools .curl"))
        assert answer["metric"] == "cosine"
        words = [word["text"] for word in answer["a"]["words"]]
        sentence = page.locator("#alignment .sentence").first
        assert sentence.locator(".word").all_inner_texts() == words
        assert page.locator("#links li").count() == len(answer["alignment"]["links"])
        (again,) = run_python(copied(page, "#explain-tools .python"))
        assert again["alignment"]["links"] == answer["alignment"]["links"]


def test_both_return_the_pairs_of_the_list(open_page, url: str) -> None:
    with open_page(
        f"{url}/#tab=list&threshold=2&threshold_on=rating", permissions=CLIPBOARD
    ) as page:
        fill_list(page, LINES)
        (answer,) = run_shell(copied(page, "#list .copies .curl"))
        assert answer["pairs"] == [[0, 1]]
        assert page.locator("#duplicates li").all_inner_texts() == LINES[:2]
        assert run_python(copied(page, "#list .copies .python")) == [answer]
        page.select_option("#list-metric", "js")
        page.locator("#threshold-value:not(:has-text('of 5'))").wait_for()
        page.locator("#list:not([aria-busy])").wait_for()
        (answer,) = run_shell(copied(page, "#list .copies .curl"))
        assert answer["metric"] == "js"
        assert len(answer["pairs"]) == 1


TSV = "label\ta\tb\n" + "".join(
    f"{str(bool(label)).lower()}\t{a}\t{b}\n\n" for a, b, label in BINARY
)


@pytest.mark.parametrize(
    ("file", "requests"),
    [
        pytest.param(labelled_file(BINARY, name="it's.csv"), 1, id="csv"),
        pytest.param(raw_file(TSV, "pairs.tsv"), 1, id="tsv"),
        pytest.param(labelled_file(RATED), 2, id="ratings"),
    ],
)
def test_both_return_the_agreement_of_the_file(
    open_page, url: str, tmp_path: Path, file, requests: int
) -> None:
    (tmp_path / file["name"]).write_bytes(file["buffer"])
    with open_page(url, permissions=CLIPBOARD) as page:
        upload(page, file)
        rows = page.locator("#agreement tbody tr").all()
        names = {"AUC": "auc", "Average precision": "average_precision", "Spearman": "spearman"}
        shown = {}
        for row in rows:
            name, value = row.locator("th, td").all_inner_texts()[:2]
            shown[names[name.split("\n")[0]]] = float(value)
        shell = run_shell(copied(page, "#labelled .copies .curl"))
        python = run_python(copied(page, "#labelled .copies .python"), cwd=tmp_path)
        for answers in (shell, python):
            found = {
                name: measured["value"]
                for answer in reversed(answers)  # Spearman is that of the ratings
                for name, measured in answer["agreement"].items()
                if measured is not None
            }
            assert found == pytest.approx(shown, abs=6e-4)
            assert len(answers) == requests


def test_the_evaluate_command_measures_the_file(open_page, url: str, tmp_path: Path) -> None:
    lattemix = Path(sys.executable).parent / "lattemix"
    file = labelled_file(RATED, name="my pairs.csv")
    (tmp_path / file["name"]).write_bytes(file["buffer"])
    with open_page(url) as page:
        upload(page, file)
        command = page.locator("#use-evaluate code").inner_text()
        assert command == f"lattemix evaluate 'my pairs.csv' --scale=0,5 --url {url}"
        spearman = page.locator("#agreement tr", has_text="Spearman").locator("td").first
        path = f"{lattemix.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert spearman.inner_text() in done.stdout, done.stderr


def test_commands_name_the_model_and_read_the_key(
    open_page, default_store: Store, tmp_path: Path
) -> None:
    file = labelled_file(BINARY)
    (tmp_path / file["name"]).write_bytes(file["buffer"])
    environment = os.environ | {"LATTEMIX_API_KEY": "s3cret"}
    with (
        serving(default_store, models="default,fast", LATTEMIX_API_KEYS="s3cret") as (_, locked),
        open_page(f"{locked}/#model=fast", expected=("401",), permissions=CLIPBOARD) as page,
    ):
        page.fill("#key-value", "s3cret")
        page.keyboard.press("Enter")
        page.locator("#links li").first.wait_for()
        commands = [copied(page, "#pair .copies .curl")]
        programs = [copied(page, "#pair .copies .python")]
        upload(page, file)
        commands.append(copied(page, "#labelled .copies .curl"))
        programs.append(copied(page, "#labelled .copies .python"))
        assert "s3cret" not in "".join(commands + programs)
        answers = [run_shell(command, env=environment) for command in commands]
        answers += [run_python(program, env=environment, cwd=tmp_path) for program in programs]
        assert [answer["model"] for (answer,) in answers] == ["fast"] * 4


def test_says_when_there_is_nothing_to_copy_or_too_much(open_page, url: str) -> None:
    with open_page(url, permissions=CLIPBOARD) as page:
        fill_pair(page, "", "")
        page.click("#pair .copies .curl")
        page.locator("#toast", has_text="There is nothing to copy yet.").wait_for()
        fill_list(page, [f"{i} {'word ' * 500}" for i in range(50)])
        page.click("#list .copies .curl")
        page.locator("#toast", has_text="too long for a command: copy as Python").wait_for()
        assert run_python(copied(page, "#list .copies .python"))


WITHOUT_CLIPBOARD = """
Object.defineProperty(navigator, "clipboard", { value: undefined });
document.execCommand = () => { window.copied = document.activeElement.value; return true; };
"""


def test_copies_without_a_secure_connection(open_page, url: str) -> None:
    with open_page("about:blank", at=url) as page:
        page.add_init_script(WITHOUT_CLIPBOARD)
        page.goto(url)
        fill_pair(page, *HARD)
        page.click("#pair .copies .curl")
        page.locator("#toast", has_text="Copied the curl command.").wait_for()
        assert page.evaluate("window.copied").startswith(f"curl {url}/similarity ")
        assert page.evaluate("document.activeElement.className") == "curl"
