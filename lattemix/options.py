"""Options that several commands of `lattemix` share."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import typer
from pydantic import TypeAdapter, ValidationError

from lattemix.settings import Provider, Truncate
from model_store import LatteMixError, Metric

T = TypeVar("T")

ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Model, `name` or `name:precision`; else LATTEMIX_MODEL, or the server's default with "
        "--url."
    ),
]
OneMetric = Annotated[
    Metric | None, typer.Option(help="Similarity metric; default: the model's recommended one.")
]
MetricsOption = Annotated[
    str | None,
    typer.Option(help="Similarity metrics, comma-separated; default: the model's recommended one."),
]
PRECISION_HELP = "Precisions, comma-separated: fp32, fp16, int8; default: {}."
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Directory of the models; else LATTEMIX_STORE.")
]
ProviderOption = Annotated[
    Provider | None, typer.Option("--provider", help="Device; else LATTEMIX_PROVIDER.")
]
SentenceFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="File of sentences: .txt, .csv, .tsv, .parquet (column text or sentence, or the only "
        "one), .jsonl, or - for lines from standard input.",
    ),
]
OUT_HELP = (
    "Output file: .csv, .tsv, .json, .jsonl, .parquet{}; default: JSON lines on standard output."
)
Out = Annotated[Path | None, typer.Option(dir_okay=False, help=OUT_HELP.format(" or .npy"))]
RankOut = Annotated[Path | None, typer.Option("--out", dir_okay=False, help=OUT_HELP.format(""))]
TruncateOption = Annotated[
    Truncate | None,
    typer.Option(
        help="How to handle texts over the model's maximum length; else LATTEMIX_TRUNCATE."
    ),
]
Url = Annotated[
    str | None,
    typer.Option(help="Server to use instead of a model in this process; see LATTEMIX_API_KEY."),
]

Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="This process, or a Ray cluster: RAY_ADDRESS, or a temporary one."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Ray workers; default: one per core or GPU.")
]


def split_names(names: str | None) -> list[str]:
    """Parse a comma-separated option."""
    return [name.strip() for name in names.split(",")] if names else []


def parse_metrics(names: str | None) -> list[Metric] | None:
    """Parse `--metrics`."""
    return None if names is None else parse_choices(names, list[Metric], "--metrics")


def parse_choices(names: str, kind: type[list[T]], option: str) -> list[T]:
    """Parse a comma-separated option; raise `LatteMixError` for an unknown name."""
    try:
        return TypeAdapter(kind).validate_python([name.strip() for name in names.split(",")])
    except ValidationError:
        (literal,) = get_args(kind)
        known = ", ".join(get_args(literal))
        raise LatteMixError(f"{option} {names}: choose among {known}.") from None
