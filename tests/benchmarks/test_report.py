"""Tables of series."""

from benchmarks.report import Table, ratio_cell, spread_cell, system_names, workload_names

SERIES = {"w/a/rate": [2.0, 6.0], "w/b/rate": [1.0, 2.0], "v/c/ms": [1.0]}


def test_table_is_aligned_markdown() -> None:
    text = str(Table("Speed", ["", "a/s"], [["ours", "12"], ["theirs", "3"]], "A note."))
    assert text.splitlines()[2:6] == [
        "|        | a/s |",
        "|--------|-----|",
        "| ours   | 12  |",
        "| theirs | 3   |",
    ]
    assert text.endswith("A note.\n")


def test_cells_are_empty_without_values() -> None:
    assert spread_cell(SERIES, "w/a/rate", ".0f") == "4 (2 to 6)"
    assert spread_cell(SERIES, "w/c/rate") == ""
    assert ratio_cell(SERIES, "w/a/rate", "w/b/rate", ".1f") == "2.5 (2.0 to 3.0)"
    assert ratio_cell(SERIES, "w/a/rate", "w/c/rate") == ""


def test_names_are_listed_in_order_of_measurement() -> None:
    assert workload_names(SERIES) == ["w", "v"]
    assert system_names(SERIES, "w", "rate") == ["a", "b"]
    assert system_names(SERIES, "w", "ms") == []
