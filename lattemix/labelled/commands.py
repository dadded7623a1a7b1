"""Commands of `lattemix` that read labelled pairs: evaluate, calibrate."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lattemix.options import StoreOption, TruncateOption, Url, split_names
from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError, Store
from model_store.calibration import CALIBRATION
from model_store.store import DEFAULT_MODELS

if TYPE_CHECKING:
    from lattemix.labelled.agreement import AnyModel
    from lattemix.labelled.pairs import LabelledPairs

commands = typer.Typer()

PairsFile = Annotated[
    Path,
    typer.Argument(
        metavar="PAIRS",
        help="Labelled pairs: .csv, .tsv, .jsonl or .parquet with columns a, b or sentence1, "
        "sentence2, and label.",
        exists=True,
        dir_okay=False,
    ),
]
ColumnsOption = Annotated[
    str | None, typer.Option(help="Columns of both sentences and the label, comma-separated.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(help="Lowest and highest label of ratings, as in 0,5; default: labels 0 and 1."),
]


@commands.command()
def evaluate(
    file: PairsFile,
    models: Annotated[
        str | None,
        typer.Option(
            help=f"Models, comma-separated; default: {','.join(DEFAULT_MODELS)}, or the server's "
            "with --url."
        ),
    ] = None,
    columns: ColumnsOption = None,
    scale: ScaleOption = None,
    truncate: TruncateOption = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="JSON file for the results.")
    ] = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Compare models and metrics on labelled pairs: AUC, average precision, Spearman."""
    from lattemix.labelled.evaluate import evaluate
    from lattemix.labelled.pairs import parse_scale, read_labelled
    from lattemix.labelled.text import evaluation_text

    if out is not None and not out.absolute().parent.is_dir():
        raise LatteMixError(f"{out}: there is no directory {out.parent}.")
    pairs = read_labelled(file, split_names(columns) or None, parse_scale(scale)).check()
    _note_contradictions(pairs)
    opened = list(_open(split_names(models), store, url))  # all of them before the work
    evaluation = evaluate(opened, pairs, truncate)
    typer.echo(evaluation_text(evaluation))
    if out:
        out.write_text(evaluation.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _open(
    models: Sequence[str], store: Path | None, url: str | None
) -> "Iterator[AbstractContextManager[AnyModel]]":
    """Yield each model, loaded or on a server."""
    if url is not None:
        if store is not None:
            raise LatteMixError("--url cannot be combined with --store.")
        from lattemix.client import Client

        if not models:
            with Client(url) as client:
                models = client.info().models
        yield from (Client(url, model=name) for name in models)
        return
    from lattemix.loading import load

    for name in models or DEFAULT_MODELS:
        yield nullcontext(load(name, store=store))


@commands.command()
def calibrate(
    file: PairsFile,
    out: Annotated[
        str | None,
        typer.Option(help="Name of the calibrated model to store; default: only report."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Directory for the plot, the figures and calibration.json."),
    ] = None,
    columns: ColumnsOption = None,
    scale: ScaleOption = None,
    about: Annotated[
        str | None, typer.Option(help="Description of the pairs; default: the file's name.")
    ] = None,
    precision: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Wanted precision; repeatable.")
    ] = None,
    recall: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Wanted recall; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cross-validation.")] = 0,
    truncate: TruncateOption = None,
    model: Annotated[
        str | None, typer.Option(help="Model, `name` or `name:precision`; else LATTEMIX_MODEL.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Calibrate a model on labelled pairs: probabilities, ratings and thresholds."""
    from lattemix.labelled.calibrate import DEFAULT_GOALS, calibrate, check_target, publish
    from lattemix.labelled.pairs import parse_scale, read_labelled
    from lattemix.labelled.text import calibration_text
    from lattemix.labelled.thresholds import Goal
    from lattemix.loading import load

    if report is not None:
        from lattemix.labelled.plots import draw

        if report.exists() and not report.is_dir():  # better found before the work than after
            raise LatteMixError(f"--report {report}: this is a file, not a directory.")
    pairs = read_labelled(file, split_names(columns) or None, parse_scale(scale)).check()
    if not pairs.is_binary and (precision or recall):
        raise LatteMixError("--precision and --recall are for labels 0 and 1.")
    _note_contradictions(pairs)
    loaded = load(model, store=store)
    models = Store(read_settings(ModelSettings, store=store).store)
    artifact = models.open(loaded.info().model_id)
    if out is not None:
        check_target(models, out, artifact)
    goals = [Goal("precision", value) for value in precision or ()]
    goals += [Goal("recall", value) for value in recall or ()]
    described = about or f"{file.name}, {len(pairs):,} labelled pairs"
    head = artifact.manifest.head.sha256
    result = calibrate(loaded, pairs, head, described, goals or DEFAULT_GOALS, seed, truncate)
    typer.echo(calibration_text(result))
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
        draw(result, report / "report.png")
        result.calibration.write(report / CALIBRATION)
        text = result.model_dump_json(indent=1) + "\n"
        (report / "report.json").write_text(text, encoding="utf-8")
        typer.echo(f"\nThe report is in {report}.", err=True)
    if out is not None:
        published = publish(models, artifact, out, result.calibration).manifest.reference
        typer.echo(f"\n{published} is ready: LATTEMIX_MODEL={out}", err=True)


def _note_contradictions(pairs: "LabelledPairs") -> None:
    if pairs.contradictions:
        typer.echo(f"Note: {pairs.describe_contradictions()}.", err=True)
