"""`lattemix-train`: train, export and evaluate heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer import Option

from lattemix.cli import build
from lattemix.failures import run_command
from lattemix.options import PRECISION_HELP, StoreOption
from training.adapt.commands import commands as adapt_commands
from training.cache import DEFAULT_GIGABYTES, VectorCache
from training.corpora.commands import corpus as corpus_commands
from training.evaluate.commands import commands as evaluation_commands
from training.evaluate.sets import read_file as read_pairs
from training.interrupt import Interrupted, interruptible
from training.options import (
    DEFAULT_BACKBONE,
    BackboneOption,
    CacheOption,
    CacheSize,
    ColumnOption,
    CorpusOption,
    ExcludeOption,
    HeadBackboneOption,
    HeadOption,
    SettingsOption,
    notify,
)
from training.output import resume_command, saved_step
from training.paper.commands import commands as paper_commands
from training.readers import check as check_corpus
from training.readers import read_exclusion
from training.recipe import DEFAULT_RECIPE, Recipe, parse_settings

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate Latte-Mix heads.",
)

SETTINGS = Recipe.load(DEFAULT_RECIPE).describe()
PRECISIONS = "fp32,int8"


@cli.command(epilog="\n".join(["Settings and their values in default.toml:", *SETTINGS]))
def train(
    corpus: CorpusOption,
    out: Annotated[Path, Option(help="Directory to write the head to.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    recipe: Annotated[Path, Option(help="TOML file of settings.")] = DEFAULT_RECIPE,
    settings: SettingsOption = None,
    steps: Annotated[int | None, Option(min=1, help="Same as --set steps=N.")] = None,
    seed: Annotated[int | None, Option(min=0, help="Same as --set seed=N.")] = None,
    max_sentences: Annotated[
        int | None, Option(min=2, help="Same as --set max_sentences=N.")
    ] = None,
    column: ColumnOption = None,
    exclude: ExcludeOption = None,
    about: Annotated[str | None, Option(help="Description of the corpus.")] = None,
    licence: Annotated[str | None, Option(help="Licence of the corpus.")] = None,
    dev: Annotated[Path | None, Option(help="An sts-dev.csv to score the head on.")] = None,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Write TensorBoard events to OUT/tensorboard.")
    ] = False,
    restart: Annotated[bool, Option("--restart", help="Discard a previous run in OUT.")] = False,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Train a head on a frozen backbone; the same command again resumes an interrupted run."""
    with _resumable(out):
        options = {"steps": steps, "seed": seed, "max_sentences": max_sentences}
        overrides = {key: value for key, value in options.items() if value is not None}
        chosen = Recipe.load(recipe, **parse_settings(settings or ()) | overrides)
        check_corpus(corpus, column or ())  # before importing torch, which takes seconds
        exclusion = read_exclusion(exclude or (), column or ())
        pairs = read_pairs(dev) if dev else None
        from training.job import Job

        Job(
            out,
            backbone,
            corpus,
            chosen,
            VectorCache(cache, cache_gb),
            columns=column or (),
            exclusion=exclusion,
            about=about,
            licence=licence,
            dev=pairs,
            restart=restart,
            tensorboard=tensorboard,
        ).run(notify)


@cli.command()
def init(
    out: Annotated[Path, Option(help="Directory to write the head to.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    settings: SettingsOption = None,
) -> None:
    """Write an untrained orthogonal head for a backbone: no corpus, close to mean pooling."""
    orthogonal = {"encoder": "orthogonal", "normalisation": "equal-norm", "steps": 0}
    recipe = Recipe.load(DEFAULT_RECIPE, **orthogonal | parse_settings(settings or ()))
    from training.job import initialise

    initialise(out, backbone, recipe, notify)


@cli.command()
def distill(
    out: Annotated[Path, Option(help="Directory to write the table to.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    layer: Annotated[int | None, Option(min=0, help="Hidden layer; default: the last.")] = None,
    template: Annotated[
        str, Option(help='Text around each token, as in "the meaning of {token}".')
    ] = "{token}",
) -> None:
    """Write a table of a transformer's token vectors, a static backbone to train heads on."""
    from lattemix.build.backbones import open_backbone
    from lattemix.build.distill import distill

    with open_backbone(backbone) as checkpoint:
        notify(f"Distilling {checkpoint.name}")
        distill(checkpoint, out, layer, template)
    notify(f"Wrote the table to {out}: pass it to train with --backbone {out}.")


@cli.command()
def export(
    head: HeadOption,
    name: Annotated[
        str | None, Option(help="Name of the model; default: the head's directory name.")
    ] = None,
    backbone: HeadBackboneOption = None,
    precision: Annotated[str, Option(help=PRECISION_HELP.format(PRECISIONS))] = PRECISIONS,
    store: StoreOption = None,
) -> None:
    """Assemble an artifact from a head and publish it in the store."""
    build(backbone=backbone, head=head, name=name, precision=precision, store=store)


@cli.command()
def describe(
    head: HeadOption,
    corpus: CorpusOption,
    column: ColumnOption = None,
    backbone: HeadBackboneOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Find the top words of each latent class, for a head that was trained without them."""
    check_corpus(corpus, column or ())
    from training.meanings import describe

    describe(head, corpus, VectorCache(cache, cache_gb), column or (), backbone, notify)


@cli.command()
def order(
    head: HeadOption,
    corpus: CorpusOption,
    column: ColumnOption = None,
    exclude: ExcludeOption = None,
    backbone: HeadBackboneOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Order the latent dims of a head that was trained without it, for shorter vectors."""
    check_corpus(corpus, column or ())
    exclusion = read_exclusion(exclude or (), column or ())
    from training.order import order

    vectors = VectorCache(cache, cache_gb)
    order(head, corpus, vectors, column or (), exclusion, backbone, notify)


cli.add_typer(adapt_commands)
cli.add_typer(evaluation_commands)
cli.add_typer(paper_commands)
cli.add_typer(corpus_commands, name="corpus")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """On SIGINT or SIGTERM, print the command that resumes the run in `out` and exit."""
    try:
        with interruptible():
            yield
    except Interrupted as interrupt:
        step = saved_step(out)
        if step is None:
            notify("Interrupted before the first step: nothing is saved. Start again with:")
        else:
            notify(f"Interrupted. The run is saved at step {step:,}. Resume it with:")
        notify(f"  {resume_command(saved=step is not None)}")
        raise typer.Exit(interrupt.exit_code) from None


def main() -> NoReturn:
    """Entry point of `lattemix-train`."""
    run_command(cli, "lattemix-train")
