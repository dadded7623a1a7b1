"""What the parts make of what was measured, and how kernels are compared."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import suite
from benchmarks.load import Answers
from benchmarks.parts import kernels, memory, overload
from benchmarks.processes import Worker
from benchmarks.processes import memory as memory_of
from benchmarks.report import Table, beside, cell
from lattemix.similarity import matrix, similarity
from model_store import Metric


def test_tables_are_markdown() -> None:
    text = str(Table("Speed", ["", "a/s"], [["ours", "12"], ["theirs", "3"]], "A note."))
    assert text.splitlines()[2:6] == [
        "|        | a/s |",
        "|--------|-----|",
        "| ours   | 12  |",
        "| theirs | 3   |",
    ]
    assert text.endswith("A note.\n")


def test_cells_are_empty_where_nothing_was_measured() -> None:
    series = {"w/a/rate": [2.0, 6.0], "w/b/rate": [1.0, 2.0]}
    assert cell(series, "w/a/rate", ".0f") == "4 (2 to 6)"
    assert cell(series, "w/c/rate") == ""
    assert beside(series, "w/a/rate", "w/b/rate", ".1f") == "2.5 (2.0 to 3.0)"
    assert beside(series, "w/a/rate", "w/c/rate") == ""


def answers(due: list[float], seconds: list[float], status: list[int]) -> Answers:
    ends = np.array(due) + np.array(seconds)
    return Answers(np.array(due), np.array(seconds), np.array(status), float(ends.max()), 0.01)


def test_goodput_is_counted_from_the_first_refusal_on() -> None:
    # One a second for ten; refused from 4 s on, but for those due at 6 and 8.
    due = [float(second) for second in range(10)]
    status = [200, 200, 200, 200, 429, 429, 200, 429, 200, 429]
    found = overload.judged(answers(due, [0.5] * 10, status), 10.0)
    assert found["goodput"] == pytest.approx(2 / 5.5)  # from 4.5 s on
    assert found["refused %"] == pytest.approx(100 * 3 / 5)
    assert found["errors"] == 0


def test_what_is_answered_after_the_end_is_no_goodput() -> None:
    found = overload.judged(answers([0.0, 1.0], [0.5, 5.0], [200, 200]), 2.0)
    assert found["goodput"] == pytest.approx(0.5)
    assert found["refused %"] == 0


def test_other_answers_are_errors() -> None:
    found = overload.judged(answers([0.0, 1.0, 1.5], [0.1] * 3, [200, 500, 0]), 2.0)
    assert found["errors"] == 2


def test_arrivals_come_at_their_rate_by_chance() -> None:
    due = overload.arrivals("a", 200, 10)
    assert len(due) == pytest.approx(2000, rel=0.1)
    assert due[-1] < 10
    gaps = np.diff(due)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.15)  # as of Poisson's


@pytest.mark.parametrize("metric", kernels.METRICS)
def test_naive_kernels_compute_the_same(metric: Metric) -> None:
    a, b = kernels.mixtures(0, 6), kernels.mixtures(1, 6)
    np.testing.assert_allclose(a.sum(axis=-1), 1, atol=1e-5)
    pairs = np.array([kernels.naive(metric, x, y) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(pairs, similarity(metric, a, b), atol=kernels.CLOSE)
    table = np.array([kernels.naive(metric, x, b) for x in a])
    np.testing.assert_allclose(table, matrix(metric, a, b), atol=kernels.CLOSE)


def test_soak_requests_are_mixed_and_partly_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.texts, "vocabulary", lambda: ["some", "words", "of", "many"])
    made = list(memory.requests("a", 400))
    assert len(made) == 400
    assert 150 < len(set(made)) < 350
    assert {b"/embed", b"/similarity"} <= {request.split()[1] for request in made}


def test_a_worker_keeps_what_it_made_and_raises_what_it_raised() -> None:
    worker = Worker(dict, [("a", 1)])
    assert worker.call("get", "a") == 1
    worker.call("update", {"b": 2})
    assert worker.call("__len__") == 2
    assert worker.peak_bytes() > 1e6
    with pytest.raises(KeyError):
        worker.call("pop", "c")
    worker.close()


def test_memory_is_that_of_the_process() -> None:
    assert 1e6 < memory_of("self", "VmRSS") <= memory_of("self", "VmHWM")


def test_every_part_measures_and_tells() -> None:
    assert {"throughput", "latency", "load", "cache", "kernels", "memory", "scaling"} <= set(
        suite.PARTS
    )
    for part in suite.PARTS.values():
        assert callable(part.run)
        assert callable(part.tables)


def test_the_suite_itself_stays_light() -> None:
    """Torch in the process that starts the others would be in none of theirs, but in the way."""
    program = (
        "import sys, benchmarks.__main__; "
        "print(*{'torch', 'sentence_transformers', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
