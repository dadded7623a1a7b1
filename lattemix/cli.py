"""`lattemix`: serve a model, compare sentences, assemble and list models.

Commands import what they need when they run: a client needs no ONNX Runtime.
"""

from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from lattemix import __version__
from lattemix.bulk.dedup.command import commands as dedup_commands
from lattemix.bulk.writers import Format, check_output, format_for
from lattemix.failures import run_command
from lattemix.labelled.commands import commands as labelled_commands
from lattemix.options import (
    PRECISION_HELP,
    Engine,
    MetricsOption,
    ModelOption,
    OneMetric,
    Out,
    ProviderOption,
    RankOut,
    SentenceFile,
    StoreOption,
    TruncateOption,
    Url,
    Workers,
    parse_choices,
    parse_metrics,
    split_names,
)
from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError, Precision, Store
from model_store.choice import FASTEST, choose
from model_store.store import DEFAULT_MODELS, HEADS, Entry

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"lattemix {__version__}")
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Semantic similarity with latent categorical mixtures."""


@cli.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address; else LATTEMIX_HOST, or 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; else LATTEMIX_PORT, or 8000.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model, `name` or `name:precision`; else LATTEMIX_MODEL.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Models, comma-separated, the default first; else LATTEMIX_MODELS."),
    ] = None,
    store: StoreOption = None,
    provider: ProviderOption = None,
) -> None:
    """Serve models over HTTP."""
    if model is not None and models is not None:
        raise LatteMixError("--model cannot be combined with --models: name all with --models.")
    from app.run import run
    from app.settings import load_settings

    chosen = models or model  # a flag takes precedence over both variables
    run(load_settings(host=host, port=port, models=chosen, store=store, provider=provider))


@cli.command()
def similarity(
    a: Annotated[str | None, typer.Argument(help="A sentence.")] = None,
    b: Annotated[str | None, typer.Argument(help="Another sentence.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="File of pairs: .csv, .tsv, .parquet (columns a, b or sentence1, sentence2, or "
            "the only two), .jsonl, or - for tab-separated lines from standard input."
        ),
    ] = None,
    out: Out = None,
    metrics: MetricsOption = None,
    truncate: TruncateOption = None,
    model: ModelOption = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Compare two sentences, or the pairs of a file."""
    requested = parse_metrics(metrics)
    from lattemix.bulk import commands

    check_output(out)
    pairs = commands.pair_rows(a, b, file, out)
    with commands.open_model(url, model, store) as loaded:
        chosen = requested or [loaded.info().recommended_metric]
        if file is None and out is None:
            commands.print_similarities(loaded, pairs, chosen, truncate)
        else:
            commands.write_similarities(loaded, pairs, chosen, truncate, out)


@cli.command()
def explain(
    a: Annotated[str, typer.Argument(help="A sentence.")],
    b: Annotated[str, typer.Argument(help="Another sentence.")],
    metric: OneMetric = None,
    truncate: TruncateOption = None,
    model: ModelOption = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Explain the similarity of two sentences: aligned words, shared and unshared meanings."""
    from lattemix.bulk import commands

    with commands.open_model(url, model, store) as loaded:
        commands.print_explanation(loaded, a, b, metric, truncate)


@cli.command()
def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="Sentences.")] = None,
    file: SentenceFile = None,
    out: Out = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="dense: [L][C] lists; flat: one [L*C] list; sparse: indices and values of weights "
            "from 0.01 up. .csv, .tsv and .parquet hold flat mixtures, .npy dense or flat ones.",
        ),
    ] = None,
    truncate: TruncateOption = None,
    model: ModelOption = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Encode sentences as mixtures."""
    from lattemix.bulk import commands

    check_output(out)
    form = format_for(out, form)
    rows = commands.text_rows(texts, file, out)
    with commands.open_model(url, model, store) as loaded:
        commands.write_mixtures(loaded, rows, truncate, form, out)


@cli.command()
def rank(
    query: Annotated[str, typer.Argument(help="The sentence to compare with.")],
    candidates: Annotated[list[str] | None, typer.Argument(help="Sentences to order.")] = None,
    file: SentenceFile = None,
    mixtures: Annotated[
        Path | None,
        typer.Option(help="File of mixtures that `lattemix embed` wrote, instead of sentences."),
    ] = None,
    out: RankOut = None,
    metric: OneMetric = None,
    truncate: TruncateOption = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Maximum number of results.")] = None,
    model: ModelOption = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Order sentences, or the mixtures of a file, by their similarity to a query."""
    from lattemix.bulk import commands
    from lattemix.bulk.mixtures import read_mixtures

    check_output(out, exclude=".npy")
    if mixtures is not None:
        if candidates or file:
            raise LatteMixError("--mixtures cannot be combined with sentences or --file.")
        stored = read_mixtures(mixtures)
        with commands.open_model(url, model, store) as loaded:
            commands.write_stored_ranking(
                loaded, query, mixtures, stored, metric, truncate, top_k, out
            )
        return
    rows = commands.text_rows(candidates, file, out)
    plain = file is None and out is None
    with commands.open_model(url, model, store) as loaded:
        commands.write_ranking(loaded, query, rows, metric, truncate, top_k, out, plain)


@cli.command()
def score(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A .parquet, .csv, .tsv or .jsonl file, or a directory of them.",
            exists=True,
        ),
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Directory to write; it must not exist.")
    ],
    columns: Annotated[
        str, typer.Option(help="Two columns to compare, comma-separated, or one to embed.")
    ] = "a,b",
    keep: Annotated[
        str | None, typer.Option(help="Other columns to copy as text, comma-separated.")
    ] = None,
    metrics: MetricsOption = None,
    truncate: TruncateOption = None,
    engine: Engine = "local",
    workers: Workers = None,
    parts: Annotated[
        Literal["parquet", "csv", "tsv", "jsonl", "npy"] | None,
        typer.Option(help="File type to write; default: the input's, or parquet for mixtures."),
    ] = None,
    shard_rows: Annotated[int, typer.Option(min=1, help="Rows per file.")] = 10_000,
    model: ModelOption = None,
    store: StoreOption = None,
) -> None:
    """Score or embed larger-than-memory files. Run it again to resume an interrupted run."""
    requested = parse_metrics(metrics)
    settings = read_settings(ModelSettings, model=model, store=store, truncate=truncate)
    from lattemix.bulk.runners import runner_of
    from lattemix.bulk.score import score as score_files

    tally = score_files(
        source,
        output,
        split_names(columns),
        split_names(keep),
        requested,
        parts,
        shard_rows,
        runner_of(engine, settings, workers),
    )
    _report(f"{output} is complete: {tally.rows:,} rows.")
    if tally.truncated:
        note = "sentences have more tokens than the model reads and were truncated"
        _report(f"Note: {tally.truncated:,} {note}.")
    if tally.rejected:
        rejected = f"{tally.rejected:,} of {tally.rows:,} rows were rejected"
        _report(f"{rejected}; the first is {tally.first_rejection}")
        raise typer.Exit(1)


@cli.command()
def measure(
    model: ModelOption = None,
    store: StoreOption = None,
    provider: ProviderOption = None,
    seconds: Annotated[float, typer.Option(min=0, help="Duration per sentence length.")] = 2,
) -> None:
    """Measure the model's throughput on this machine."""
    settings = read_settings(ModelSettings, model=model, store=store, provider=provider)
    from lattemix.encoder import Encoder
    from lattemix.speed import full_rows, lengths, measure_speed

    encoder = Encoder.load(settings)
    title = f"{encoder.manifest.reference} on {encoder.provider}"
    typer.echo(f"{title}: batches of {encoder.token_budget} tokens, {encoder.parallel} at once")
    typer.echo("tokens/sentence  sentences/s  tokens/s  ms/batch")
    for length in lengths(encoder):
        speed = measure_speed(encoder, length, full_rows(encoder, length), seconds)
        milliseconds = speed.batch_seconds * 1000
        rates = f"{speed.sentences:11,.0f}  {speed.tokens:8,.0f}"
        typer.echo(f"{speed.length:15}  {rates}  {milliseconds:8.1f}")


@cli.command("gpu-check")
def gpu_check(
    model: ModelOption = None,
    store: StoreOption = None,
    seconds: Annotated[float, typer.Option(min=0, help="Duration per batch size.")] = 0.5,
) -> None:
    """Check a model on this machine's GPU and print a report in Markdown.

    Checks that every operator runs on CUDA and that results agree with fp32 on the CPU, and
    measures the throughput. Exits with 1 if there is no GPU or a check fails.
    """
    settings = read_settings(ModelSettings, model=model, store=store)
    from lattemix.gpu_check import check_gpu

    report = check_gpu(settings, seconds)
    typer.echo(report.markdown())
    if not report.passed:
        raise typer.Exit(1)


@cli.command()
def build(
    backbone: Annotated[
        str | None, typer.Option(help="Directory or hub id of the backbone; default: the head's.")
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(help=f"Directory of a trained head; default: {', '.join(DEFAULT_MODELS)}."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Model name, with --head; default: the head's directory.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help=PRECISION_HELP.format("int8 on a CPU, fp16 on a GPU"))
    ] = None,
    store: StoreOption = None,
) -> None:
    """Assemble the shipped models, or one from a head, verify them, and add them to the store."""
    if name and head is None:
        raise LatteMixError(f"--name {name} is for one model: name its head with --head.")
    from lattemix.build.assemble import assemble
    from lattemix.session import likely_device

    fastest = FASTEST[likely_device("auto")]
    precisions = parse_choices(precision or fastest, list[Precision], "--precision")
    target = Store(read_settings(ModelSettings, store=store).store)
    for directory in [head] if head else [HEADS / default for default in DEFAULT_MODELS]:
        model = name or directory.resolve().name
        for artifact in assemble(directory, target, model, backbone, _report, precisions):
            parity = artifact.manifest.parity
            assert parity is not None  # measured by `assemble`
            _report(
                f"{artifact.manifest.reference} is ready in {artifact.path} "
                f"(rank correlation with the reference: {parity.rank_agreement:.3f})"
            )


@cli.command()
def models(store: StoreOption = None) -> None:
    """List and verify the models of the store."""
    opened = Store(read_settings(ModelSettings, store=store).store)
    entries = opened.entries()
    if not entries:
        typer.echo(
            f"{opened.root} holds no models yet: assemble the shipped ones with `lattemix build`."
        )
    for entry in entries:
        typer.echo(_description(entry))
    valid = {entry.artifact.manifest.name for entry in entries if entry.artifact}
    invalid = {entry.reference.partition(":")[0] for entry in entries if entry.problem}
    for name in sorted(valid - invalid):
        artifact, reason = choose(opened, name, "cpu")
        typer.echo(f"{name}: on a CPU, {artifact.manifest.precision} is served: {reason}.")
    if any(entry.problem for entry in entries):
        raise typer.Exit(1)


cli.add_typer(dedup_commands)
cli.add_typer(labelled_commands)


def _description(entry: Entry) -> str:
    if entry.artifact is None:
        return f"{entry.reference:<24} rejected: {entry.problem}"
    manifest = entry.artifact.manifest
    size = sum(record.bytes for record in manifest.files.values()) / 1e6
    shape = f"{manifest.latent_dims}x{manifest.classes}"
    score = manifest.evaluation.get(f"stsb-dev/{manifest.recommended_metric}")
    quality = "unknown" if score is None else f"{score:.2f} by {manifest.recommended_metric}"
    properties = f"{size:6.1f} MB  {shape:<8} {manifest.backbone.name}"
    return f"{entry.reference:<24} {properties}  STSb dev {quality}  verified"


def _report(message: str) -> None:
    typer.echo(message, err=True)


def main() -> NoReturn:
    """Entry point of `lattemix`."""
    run_command(cli, "lattemix")
