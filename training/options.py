"""Options that several commands of `lattemix-train` share."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from training.evaluate.sets import TEST_SETS

DEFAULT_BACKBONE = "all-MiniLM-L6-v2"
DEFAULT_SETS = ",".join(("stsb-dev", *TEST_SETS))

BackboneOption = Annotated[
    str, Option(help="Pinned name, directory, file of word vectors, or hub id.")
]
HeadOption = Annotated[Path, Option(help="Directory of a trained head.")]
HeadBackboneOption = Annotated[
    str | None, Option(help="Backbone; default: the one the head was trained on.")
]
CorpusOption = Annotated[
    list[Path], Option(help="Text, SNLI, .jsonl, .csv, .tsv, .parquet, - for stdin; repeatable.")
]
ColumnOption = Annotated[list[str] | None, Option(help="Field that holds sentences; repeatable.")]
ExcludeOption = Annotated[
    list[Path] | None,
    Option(help="Folder of benchmarks, or file, whose sentences to drop; repeatable."),
]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable."),
]
CacheOption = Annotated[
    Path | None,
    Option(envvar="LATTEMIX_CACHE", help="Cache of token vectors; default: ~/.cache/lattemix."),
]
CacheSize = Annotated[float, Option(help="Size limit of the cache, in GB.")]
DataOption = Annotated[
    list[Path], Option(help="Folder of benchmarks, TSV of score, a, b, or `hub`; repeatable.")
]
SetsOption = Annotated[str, Option(help="Sets of the folder or the hub, comma-separated.")]
ModelOption = Annotated[
    str | None, Option(help="Model to measure as served: `name` or `name:precision`.")
]
ReportOption = Annotated[Path | None, Option(help="Directory for the report.")]


def notify(message: str) -> None:
    """Print a message on standard error."""
    typer.echo(message, err=True)
