"""`lattemix`: serve a model, compare sentences, assemble and list models."""

from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeVar, get_args

import typer
from pydantic import TypeAdapter, ValidationError

from lattemix.bulk import writers as results
from lattemix.failures import complete
from lattemix.settings import ModelSettings, Provider, load_settings
from model_store import LatteMixError, Metric, Precision, Store
from model_store.choice import choose
from model_store.store import HEADS, Entry

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Semantic similarity with latent categorical mixtures.",
)

T = TypeVar("T")


Model = Annotated[str | None, typer.Option(help="`name` or `name:precision`; else LATTEMIX_MODEL.")]
METRICS = "cosine,js"
OneMetric = Annotated[
    Metric | None, typer.Option(help="Similarity metric; default: the model's recommended one.")
]
Metrics = Annotated[str, typer.Option(help="One or several, with commas.")]
PRECISIONS = "fp32,int8"
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="One or several of fp32, fp16, int8; with commas.")
]
StoreOption = Annotated[Path | None, typer.Option("--store", help="Else LATTEMIX_STORE.")]
ProviderOption = Annotated[
    Provider | None, typer.Option("--provider", help="Else LATTEMIX_PROVIDER.")
]
SentenceFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="Instead: .txt, .csv, .tsv, .parquet (column text or sentence; or just one), .jsonl, "
        "or - for lines.",
    ),
]
_OUT = "Write to .csv, .tsv, .json, .jsonl, .parquet{}; else JSON lines to standard output."
Out = Annotated[Path | None, typer.Option(dir_okay=False, help=_OUT.format(" or .npy"))]
RankOut = Annotated[Path | None, typer.Option("--out", dir_okay=False, help=_OUT.format(""))]
Url = Annotated[
    str | None,
    typer.Option(help="Ask this server (with LATTEMIX_API_KEY), not a model in this process."),
]


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Else LATTEMIX_HOST, or 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Else LATTEMIX_PORT, or 8000.")] = None,
    model: Model = None,
    store: StoreOption = None,
    provider: ProviderOption = None,
) -> None:
    """Serve a model over HTTP."""
    from app.run import run  # the service, which nothing else here knows of
    from app.settings import load_settings

    run(load_settings(host=host, port=port, model=model, store=store, provider=provider))


@cli.command()
def similarity(
    a: Annotated[str | None, typer.Argument(help="A sentence.")] = None,
    b: Annotated[str | None, typer.Argument(help="Another.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Instead, pairs: .csv, .tsv, .parquet (columns a, b or sentence1, sentence2; or "
            "just two), .jsonl, or - for lines with a tab."
        ),
    ] = None,
    out: Out = None,
    metrics: Metrics = METRICS,
    model: Model = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Compare two sentences, or the pairs in a file; without a server, or with one."""
    wanted = _chosen(metrics, list[Metric], "--metrics")
    from lattemix.bulk import commands as bulk

    results.check(out)
    pairs = bulk.pairs(a, b, file, out)
    with bulk.connected(url, model, store) as client:
        if file is None and out is None:
            bulk.show(client, pairs, wanted)
        else:
            bulk.compare(client, pairs, wanted, out)


@cli.command()
def explain(
    a: Annotated[str, typer.Argument(help="A sentence.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    metric: OneMetric = None,
    model: Model = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Tell why two sentences are similar: which words meet, and which meanings are shared."""
    from lattemix.bulk import commands as bulk

    with bulk.connected(url, model, store) as client:
        bulk.explain(client, a, b, metric)


@cli.command()
def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="Sentences.")] = None,
    file: SentenceFile = None,
    out: Out = None,
    form: Annotated[
        results.Format | None,
        typer.Option(
            "--format",
            help="Of each mixture: L lists of C weights, one list, or the weights that are not "
            "small. .csv, .tsv and .parquet hold flat ones, .npy dense or flat ones.",
        ),
    ] = None,
    model: Model = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Turn sentences into mixtures; without a server, or with one."""
    from lattemix.bulk import commands as bulk

    results.check(out)
    form = results.format_for(out, form)
    rows = bulk.sentences(texts, file, out)
    with bulk.connected(url, model, store) as client:
        bulk.embed(client, rows, form, out)


@cli.command()
def rank(
    query: Annotated[str, typer.Argument(help="A sentence.")],
    candidates: Annotated[list[str] | None, typer.Argument(help="To be put in order.")] = None,
    file: SentenceFile = None,
    out: RankOut = None,
    metric: OneMetric = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Only so many.")] = None,
    model: Model = None,
    store: StoreOption = None,
    url: Url = None,
) -> None:
    """Put sentences in order of their similarity to one; without a server, or with one."""
    from lattemix.bulk import commands as bulk

    results.check(out, but=".npy")
    rows = bulk.sentences(candidates, file, out)
    plainly = file is None and out is None
    with bulk.connected(url, model, store) as client:
        bulk.rank(client, query, rows, metric, top_k, out, plainly)


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
    output: Annotated[Path, typer.Argument(help="Directory to write; it must not exist yet.")],
    columns: Annotated[
        str, typer.Option(help="Two to compare, with a comma, or one to embed.")
    ] = "a,b",
    keep: Annotated[
        str | None, typer.Option(help="Others to carry over as text, with commas.")
    ] = None,
    metrics: Metrics = METRICS,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="This process, or a Ray cluster (RAY_ADDRESS, else its own)."),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of Ray; else one for each core, or GPU.")
    ] = None,
    parts: Annotated[
        Literal["parquet", "csv", "tsv", "jsonl", "npy"] | None,
        typer.Option(help="Kind of the files to write; else the input's, or parquet for mixtures."),
    ] = None,
    shard_rows: Annotated[int, typer.Option(min=1, help="Rows in each of them.")] = 10_000,
    model: Model = None,
    store: StoreOption = None,
) -> None:
    """Score or embed files that fit no memory; run it again to go on where it was stopped."""
    wanted = _chosen(metrics, list[Metric], "--metrics")
    settings = load_settings(ModelSettings, model=model, store=store)
    from lattemix.bulk import score as scoring

    if engine == "local" and workers is not None:
        raise LatteMixError("--workers is for --engine ray; --engine local has all cores.")

    def start() -> scoring.Local | scoring.OnRay:
        return scoring.Local(settings) if engine == "local" else scoring.OnRay(settings, workers)

    names, kept = _listed(columns), _listed(keep)
    tally = scoring.score(source, output, names, kept, wanted, parts, shard_rows, start)
    _tell(f"{output} is complete: {tally.rows:,} rows.")
    if tally.truncated:
        _tell(f"Note: {tally.truncated:,} sentences were longer than the model reads, and cut.")
    if tally.refused:
        _tell(f"{tally.refused:,} rows were refused, the first because: {tally.first_reason}")
        raise typer.Exit(1)


@cli.command()
def measure(
    model: Model = None,
    store: StoreOption = None,
    provider: ProviderOption = None,
    seconds: Annotated[float, typer.Option(min=0, help="To spend on each length.")] = 2,
) -> None:
    """Say how many sentences and tokens a second the model reads on this machine."""
    settings = load_settings(ModelSettings, model=model, store=store, provider=provider)
    from lattemix.encoder import Encoder
    from lattemix.speed import measure

    encoder = Encoder.load(settings)
    where = f"{encoder.manifest.reference} on {encoder.provider}"
    typer.echo(f"{where}: batches of {encoder.token_budget} tokens, {encoder.parallel} at once")
    typer.echo("tokens in each  sentences/s  tokens/s  ms a batch")
    for speed in measure(encoder, seconds):
        milliseconds = speed.batch_seconds * 1000
        rates = f"{speed.sentences:11,.0f}  {speed.tokens:8,.0f}"
        typer.echo(f"{speed.length:14}  {rates}  {milliseconds:10.1f}")


@cli.command()
def build(
    backbone: Annotated[
        str | None, typer.Option(help="Directory or hub id to take the backbone from.")
    ] = None,
    head: Annotated[Path, typer.Option(help="Directory of a trained head.")] = HEADS / "default",
    name: Annotated[str | None, typer.Option(help="Else the head's directory name.")] = None,
    precision: PrecisionOption = PRECISIONS,
    store: StoreOption = None,
) -> None:
    """Assemble a model from its backbone and a head, verify it, and put it in the store."""
    from lattemix.build.assemble import assemble

    wanted = _chosen(precision, list[Precision], "--precision")
    target = Store(load_settings(ModelSettings, store=store).store)
    name = name or head.resolve().name
    for artifact in assemble(head, target, name, backbone, _tell, wanted):
        parity = artifact.manifest.parity
        assert parity is not None  # it was measured just now
        near = f"parity {parity.largest_difference:.0e}, ranks {parity.rank_agreement:.3f}"
        _tell(f"{artifact.manifest.reference} is ready in {artifact.path} ({near})")


@cli.command()
def models(store: StoreOption = None) -> None:
    """List what the store holds, verifying each."""
    held = Store(load_settings(ModelSettings, store=store).store)
    entries = held.entries()
    if not entries:
        typer.echo(
            f"{held.root} holds no models yet: assemble the default one with `lattemix build`."
        )
    for entry in entries:
        typer.echo(_row(entry))
    sound = {entry.artifact.manifest.name for entry in entries if entry.artifact}
    broken = {entry.reference.partition(":")[0] for entry in entries if entry.problem}
    for name in sorted(sound - broken):
        artifact, reason = choose(held, name, "cpu")
        typer.echo(f"{name}: on a CPU, {artifact.manifest.precision} is served: {reason}.")
    if any(entry.problem for entry in entries):
        raise typer.Exit(1)


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in names.split(",")] if names else []


def _chosen(names: str, kind: type[list[T]], option: str) -> list[T]:
    """What was named with commas, if it is all known."""
    try:
        return TypeAdapter(kind).validate_python(names.split(","))
    except ValidationError:
        (known,) = get_args(kind)
        choices = ", ".join(get_args(known))
        raise LatteMixError(f"{option} {names}: choose among {choices}.") from None


def _row(entry: Entry) -> str:
    if entry.artifact is None:
        return f"{entry.reference:<24} refused: {entry.problem}"
    manifest = entry.artifact.manifest
    size = sum(record.bytes for record in manifest.files.values()) / 1e6
    shape = f"{manifest.latent_dims}x{manifest.classes}"
    score = manifest.evaluation.get(f"stsb-dev/{manifest.recommended_metric}")
    known = "unknown" if score is None else f"{score:.2f} by {manifest.recommended_metric}"
    what = f"{size:6.1f} MB  {shape:<8} {manifest.backbone.name}"
    return f"{entry.reference:<24} {what}  STSb dev {known}  verified"


def _tell(message: str) -> None:
    typer.echo(message, err=True)


def main() -> NoReturn:
    """Entry point of `lattemix`."""
    complete(cli, "lattemix")
