"""`lattemix-train`: train a head, export it, evaluate it."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from app.cli import HEADS, StoreOption, build, complete
from app.settings import load_settings
from model_store import Store
from training.recipe import RECIPES, Recipe

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate Latte-Mix heads.",
)

DEFAULT_BACKBONE = "all-MiniLM-L6-v2"

BackboneOption = Annotated[
    str, typer.Option(help="A pinned name, a directory, a file of word vectors, or a hub id.")
]
CorpusOption = Annotated[
    list[Path], typer.Option(help="Text, SNLI, .jsonl, .csv, .tsv, .parquet, or - for stdin.")
]
ColumnOption = Annotated[list[str] | None, typer.Option(help="Which fields hold sentences.")]
CacheOption = Annotated[
    Path | None, typer.Option(envvar="LATTEMIX_CACHE", help="Else ~/.cache/lattemix.")
]
CacheSize = Annotated[float, typer.Option(help="Most it may hold, in GB.")]


def _with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for every setting of a recipe, gathered in `settings`."""

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> None:
        settings = {name: arguments.pop(name) for name in Recipe.model_fields}
        command(**arguments, settings=settings)

    own = dict(inspect.signature(command).parameters)
    own.pop("settings")
    for name, setting in Recipe.model_fields.items():
        option = typer.Option(help=setting.description, rich_help_panel="Recipe")
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
    recipe: Annotated[Path, typer.Option(help="TOML file.")] = RECIPES / "default.toml",
    column: ColumnOption = None,
    about: Annotated[str | None, typer.Option(help="The corpus in words, for the card.")] = None,
    licence: Annotated[str | None, typer.Option(help="The corpus's, for the card.")] = None,
    dev: Annotated[Path | None, typer.Option(help="An sts-dev.csv, to score the head on.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what was there.")] = False,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Train a VAE head on a frozen backbone; the same command again resumes it."""
    chosen = Recipe.load(recipe, **settings)
    from training.cache import VectorCache
    from training.job import Job

    kept = VectorCache(cache, cache_gb)
    Job(out, backbone, corpus, chosen, kept, column or (), about, licence, dev, restart).run(_tell)


@cli.command()
def export(
    head: Annotated[Path, typer.Option(help="Directory of a trained head.")],
    name: Annotated[str | None, typer.Option(help="Else the head's directory name.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    store: StoreOption = None,
) -> None:
    """Assemble an artifact from a head and publish it in the store."""
    build(backbone=backbone, head=head, name=name, store=store)


@cli.command()
def evaluate(
    data: Annotated[Path, typer.Option(help="Folder of benchmarks, or one sts-*.csv.")],
    sets: Annotated[str, typer.Option(help="Of the folder; with commas.")] = "stsb-dev",
    head: Annotated[
        list[Path] | None, typer.Option(help="A head's directory; one for each seed.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Artifact of the first head, to measure as served.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="The head's, to centre the control.")
    ] = None,
    column: ColumnOption = None,
    record: Annotated[bool, typer.Option(help="Keep the scores in the first head.")] = False,
    store: StoreOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = 20,
) -> None:
    """Compare mixtures with pooling and with untrained controls: Spearman x100."""
    from training.cache import VectorCache
    from training.evaluate.report import evaluate_heads, record_scores

    directories = head or [HEADS / "default"]
    report = evaluate_heads(
        directories,
        data,
        sets.split(","),
        VectorCache(cache, cache_gb),
        backbone,
        (corpus or (), column or ()),
        Store(load_settings(store=store).store).open(model) if model else None,
    )
    typer.echo(report.markdown)
    if record:
        record_scores(report, directories[0])


def _tell(message: str) -> None:
    typer.echo(message, err=True)


def main() -> NoReturn:
    """Entry point of `lattemix-train`."""
    complete(cli, "lattemix-train")
