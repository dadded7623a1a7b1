"""`lattemix-train`: train a head, export it, evaluate it."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from lattemix.cli import PRECISIONS, PrecisionOption, StoreOption, build
from lattemix.failures import complete
from lattemix.settings import ModelSettings, load_settings
from model_store import Artifact, LatteMixError, Store
from model_store.choice import choose
from training.commands import resume_command
from training.evaluate.sets import read_file as read_pairs
from training.interrupt import Interrupted, interruptible
from training.output import saved_step
from training.readers import check as check_corpus
from training.recipe import DEFAULT_RECIPE, RECIPES, Recipe

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate Latte-Mix heads.",
)

DEFAULT_BACKBONE = "all-MiniLM-L6-v2"
SETS = "stsb-dev,sts12,sts13,sts14,sts15,sts16,sick-r,stsb"

BackboneOption = Annotated[
    str, typer.Option(help="A pinned name, a directory, a file of word vectors, or a hub id.")
]
CorpusOption = Annotated[
    list[Path], typer.Option(help="Text, SNLI, .jsonl, .csv, .tsv, .parquet, or - for stdin.")
]
ColumnOption = Annotated[list[str] | None, typer.Option(help="Which fields hold sentences.")]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LATTEMIX_CACHE", help="Directory of cached token vectors; else ~/.cache/lattemix."
    ),
]
CacheSize = Annotated[float, typer.Option(help="Limit of that cache, in GB.")]


def _with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for every setting of a recipe, collected in `settings`."""
    defaults = Recipe.load(DEFAULT_RECIPE)

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> None:
        settings = {name: arguments.pop(name) for name in Recipe.model_fields}
        command(**arguments, settings=settings)

    own = dict(inspect.signature(command).parameters)
    own.pop("settings")
    for name, setting in Recipe.model_fields.items():
        value = getattr(defaults, name)
        option = typer.Option(
            help=setting.description,
            show_default=False if value is None else str(value),
            rich_help_panel="Recipe (defaults of default.toml)",
        )
        own[name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[setting.annotation | None, option],  # type: ignore
        )
    wrapped.__signature__ = inspect.Signature([*own.values()])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {name: parameter.annotation for name, parameter in own.items()}
    return wrapped


@cli.command()
@_with_recipe
def train(
    *,
    corpus: CorpusOption,
    out: Annotated[Path, typer.Option(help="Directory to write the head into.")],
    settings: dict[str, Any],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    recipe: Annotated[Path, typer.Option(help="TOML file.")] = DEFAULT_RECIPE,
    column: ColumnOption = None,
    about: Annotated[str | None, typer.Option(help="The corpus in words, for the card.")] = None,
    licence: Annotated[str | None, typer.Option(help="The corpus's, for the card.")] = None,
    dev: Annotated[Path | None, typer.Option(help="An sts-dev.csv, to score the head on.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write its events as well, into OUT/tensorboard.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what was there.")] = False,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Train a VAE head on a frozen backbone; the same command again resumes it."""
    with _resumable(out):
        chosen = Recipe.load(recipe, **settings)
        check_corpus(corpus, column or ())  # before torch is imported, which takes seconds
        pairs = read_pairs(dev) if dev else None
        from training.cache import VectorCache
        from training.job import Job

        Job(
            out,
            backbone,
            corpus,
            chosen,
            VectorCache(cache, cache_gb),
            column or (),
            about,
            licence,
            pairs,
            restart,
            tensorboard,
        ).run(_tell)


@cli.command()
def export(
    head: Annotated[Path, typer.Option(help="Directory of a trained head.")],
    name: Annotated[str | None, typer.Option(help="Else the head's directory name.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    precision: PrecisionOption = PRECISIONS,
    store: StoreOption = None,
) -> None:
    """Assemble an artifact from a head and publish it in the store."""
    build(backbone=backbone, head=head, name=name, precision=precision, store=store)


@cli.command()
def describe(
    head: Annotated[Path, typer.Option(help="Directory of a trained head.")],
    corpus: CorpusOption,
    column: ColumnOption = None,
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Find the words of a corpus that are most in each latent class; `train` has done it."""
    check_corpus(corpus, column or ())
    from training.cache import VectorCache
    from training.meanings import describe

    describe(head, corpus, VectorCache(cache, cache_gb), column or (), backbone, _tell)


@cli.command()
def evaluate(
    data: Annotated[
        list[Path], typer.Option(help="Folder of benchmarks, a TSV of score, a, b; or `hub`.")
    ],
    sets: Annotated[str, typer.Option(help="Of the folder or the hub; with commas.")] = SETS,
    model: Annotated[
        str | None, typer.Option(help="Measured as served: `name` or `name:precision`.")
    ] = None,
    head: Annotated[
        list[Path] | None, typer.Option(help="A head's directory; one for each seed.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Of the head or model; alone, only poolings are measured.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, help="Of a backbone alone; else the last.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Of a running server, to measure.")] = None,
    controls: Annotated[
        bool, typer.Option("--controls", help="Measure encoders nobody trained as well.")
    ] = False,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="The head's, to centre the controls.")
    ] = None,
    column: ColumnOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the report: Markdown, JSON, CSV, plots.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the scores in the first head.")
    ] = False,
    store: StoreOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Measure agreement with people: mixtures beside poolings, controls and what is served."""
    check_corpus(corpus or (), column or ())
    from training.cache import VectorCache
    from training.evaluate import tables
    from training.evaluate.evaluation import Evaluation, record_scores

    artifact = _as_served(model, store) if model else None
    evaluation = Evaluation(
        data,
        sets.split(","),
        VectorCache(cache, cache_gb),
        head or (),
        artifact,
        backbone,
        layer,
        url,
        controls,
        corpus or (),
        column or (),
    )
    if record and not evaluation.directories:
        raise LatteMixError("--record keeps scores in a head: name it with --head.")
    report = evaluation.run()
    tables.show(report)
    if out:
        from training.plots import draw_evaluation

        tables.write(report, out)
        draw_evaluation(report, out)
    if record:
        precision = artifact.manifest.precision if artifact else "fp32"
        record_scores(report, evaluation.directories[0], precision)


@cli.command()
def words(
    data: Annotated[Path, typer.Option(help="Folder of benchmarks, `words` among them.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    layer: Annotated[list[int] | None, typer.Option(help="One or several; else the last.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the report.")] = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Measure what a backbone's layers know of words: similarity, analogies, categories."""
    from training.cache import VectorCache
    from training.evaluate import tables
    from training.evaluate.words import measure_words

    report = measure_words(backbone, layer or (), data, VectorCache(cache, cache_gb))
    tables.show(report)
    if out:
        tables.write(report, out)


@cli.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="One of the paper's: pooling, vae, …")],
    data: Annotated[Path, typer.Option(help="Folder of benchmarks.")],
    out: Annotated[Path, typer.Option(help="Directory for heads, scores and the report.")],
    backbone: Annotated[
        list[str] | None,
        typer.Option(help="PAPER'S-NAME=SOURCE, as in BERT-Base=google-bert/bert-base-uncased."),
    ] = None,
    corpus: Annotated[list[Path] | None, typer.Option(help="To train on: SNLI.")] = None,
    column: ColumnOption = None,
    recipe: Annotated[Path, typer.Option(help="What the table varies.")] = RECIPES / "paper.toml",
    seeds: Annotated[int, typer.Option(min=1, help="Heads trained for every cell.")] = 3,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Rerun one of the paper's tables, beside its figures; the same command again resumes it."""
    check_corpus(corpus or (), column or ())
    from training.cache import VectorCache
    from training.evaluate import tables
    from training.paper.published import PublishedTable
    from training.paper.reproduce import Reproduction
    from training.plots import draw_layers

    comparison = Reproduction(
        PublishedTable.load(table),
        out,
        data,
        corpus or (),
        dict(map(_named_source, backbone or ())),
        Recipe.load(recipe),
        VectorCache(cache, cache_gb),
        seeds,
        column or (),
    ).run(_tell)
    tables.show(comparison)
    tables.write(comparison, out)
    draw_layers(comparison, out / "layers.png")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """End on SIGINT or SIGTERM with the command that resumes the run in `out`."""
    try:
        with interruptible():
            yield
    except Interrupted as interrupt:
        step = saved_step(out)
        if step is None:
            _tell("Interrupted before the first step: nothing is saved. Start again with:")
        else:
            _tell(f"Interrupted. The run is saved at step {step:,}. Resume it with:")
        _tell(f"  {resume_command(saved=step is not None)}")
        raise typer.Exit(interrupt.exit_code) from None


def _as_served(model: str, store: Path | None) -> Artifact:
    """The model in the precision named, or in the one that would be served here."""
    from lattemix.session import likely_device

    held = Store(load_settings(ModelSettings, store=store).store)
    artifact, reason = choose(held, model, likely_device("auto"))
    _tell(f"{artifact.manifest.reference}: {reason}")
    return artifact


def _named_source(entry: str) -> tuple[str, str]:
    name, _, source = entry.partition("=")
    if not (name and source):
        raise LatteMixError(
            "--backbone takes NAME=SOURCE, as in BERT-Base=google-bert/bert-base-uncased, "
            f"not {entry!r}."
        )
    return name, source


def _tell(message: str) -> None:
    typer.echo(message, err=True)


def main() -> NoReturn:
    """Entry point of `lattemix-train`."""
    complete(cli, "lattemix-train")
