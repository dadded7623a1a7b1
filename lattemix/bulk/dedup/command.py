"""The command `lattemix dedup`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lattemix.calibrated import ThresholdOn
from lattemix.options import Engine, StoreOption, TruncateOption, Workers
from lattemix.settings import ModelSettings, read_settings
from model_store import Metric

if TYPE_CHECKING:
    from lattemix.bulk.dedup.summary import Summary

commands = typer.Typer()


@commands.command()
def dedup(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A .txt, .csv, .tsv, .jsonl or .parquet file, or a directory of them.",
            exists=True,
        ),
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Directory to write; it must not exist.")
    ],
    column: Annotated[
        str | None,
        typer.Option(help="Column of the texts; default: text or sentence, or the only one."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Smallest score of near-duplicates; default: 0.95 for fast and default."),
    ] = None,
    threshold_on: Annotated[
        ThresholdOn, typer.Option(help="What the threshold is a value of.")
    ] = "score",
    keep: Annotated[
        str,
        typer.Option(
            help="Row to keep of near-duplicates: first, longest, shortest, or max:COLUMN for the "
            "largest number in a column."
        ),
    ] = "first",
    linkage: Annotated[
        Literal["keeper", "complete"],
        typer.Option(
            help="keeper drops a row that is similar to the kept one; complete requires that it "
            "is similar to all rows dropped for that one."
        ),
    ] = "keeper",
    against: Annotated[
        Path | None,
        typer.Option(help="File or directory: drop what it has already.", exists=True),
    ] = None,
    against_only: Annotated[
        bool, typer.Option("--against-only", help="Drop nothing else.")
    ] = False,
    model: Annotated[
        str, typer.Option(help="Model that finds pairs, `name` or `name:precision`.")
    ] = "fast",
    rescore: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Second model: the mean of both models' scores decides."
        ),
    ] = None,
    metric: Annotated[
        Metric | None, typer.Option(help="Similarity metric; default: the recommended one.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(help="Smallest score of a candidate pair, by the model that finds pairs."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Directory of intermediate results, for resuming and for other thresholds; "
            "default: OUTPUT.work."
        ),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also write plot.png: scores and group sizes.")
    ] = False,
    truncate: TruncateOption = None,
    engine: Engine = "local",
    workers: Workers = None,
    store: StoreOption = None,
) -> None:
    """Remove near-duplicates from files of any size. Run it again to resume an interrupted run."""
    from lattemix.bulk.dedup.files import dedup_files, work_path
    from lattemix.bulk.dedup.inputs import Input
    from lattemix.bulk.dedup.options import Options
    from lattemix.bulk.runners import runner_of

    if plot:
        from lattemix.bulk.dedup.plots import draw  # better missing before the work than after
    settings = read_settings(ModelSettings, model=model, store=store, truncate=truncate)
    options = Options(
        model=model,
        rescore=rescore,
        metric=metric,
        threshold=threshold,
        threshold_on=threshold_on,
        floor=floor,
        against_only=against_only,
        keep=keep,
        linkage=linkage,
    )
    work = work or work_path(output)
    summary = dedup_files(
        Input(source, column, against, keep),
        output,
        work,
        options,
        runner_of(engine, settings, workers),
    )
    if plot:
        draw(summary, output / "plot.png")
    _report(summary, output, work)


def _report(summary: "Summary", output: Path, work: Path) -> None:
    dropped = f"{summary.identical:,} identical and {summary.similar:,} similar rows dropped"
    lines = [f"{output} is complete: {summary.kept:,} of {summary.rows:,} rows kept, {dropped}."]
    if summary.truncated:
        lines.append(f"Note: {summary.truncated:,} texts were truncated.")
    if summary.not_compared:
        lines.append(
            f"Note: {summary.not_compared:,} rows were kept without a comparison; the first is "
            f"{summary.first_not_compared}"
        )
    if summary.not_rescored:
        lines.append(
            f"Note: {summary.not_rescored:,} pairs count as different: the second model rejects a "
            "text; "
            f"the first is {summary.first_not_rescored}"
        )
    size = sum(file.stat().st_size for file in work.rglob("*") if file.is_file()) / 1e6
    lines.append(
        f"Intermediate results are in {work} ({size:,.0f} MB): remove it, or try another "
        f"--threshold with --work {work}."
    )
    for line in lines:
        typer.echo(line, err=True)
