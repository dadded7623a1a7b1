"""`lattemix-train`: train a head, export it, evaluate it."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.cli import HEADS, StoreOption, build, complete
from app.settings import load_settings
from model_store import LatteMixError, Store
from training.backbones.sources import open_backbone
from training.head import Head
from training.recipe import RECIPES, Recipe

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate Latte-Mix heads.",
)

DEFAULT_BACKBONE = "all-MiniLM-L6-v2"

BackboneOption = Annotated[str, typer.Option(help="A pinned name, a directory or a hub id.")]
HeadOption = Annotated[Path, typer.Option(help="Directory of a trained head.")]


@cli.command()
def train(
    corpus: Annotated[Path, typer.Option(help="Text file, one sentence a line; no labels.")],
    out: Annotated[Path, typer.Option(help="Directory to write the head into.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    recipe: Annotated[Path, typer.Option(help="TOML file.")] = RECIPES / "default.toml",
    about: Annotated[
        str | None, typer.Option(help="The corpus in words, with its licence, for the record.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest sentence.")] = None,
    layer: Annotated[int | None, typer.Option(help="Hidden layer to read.")] = None,
    latent_dims: Annotated[int | None, typer.Option(help="L.")] = None,
    classes: Annotated[int | None, typer.Option(help="C.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the VAE.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed and corpus, same head.")] = None,
) -> None:
    """Train a VAE head on a frozen backbone."""
    if out.exists() and not out.is_dir():
        raise LatteMixError(f"--out {out} is a file: a head is a directory.")
    given = {"layer": layer, "max_tokens": max_tokens, "latent_dims": latent_dims}
    settings = Recipe.load(recipe, **given, classes=classes, steps=steps, seed=seed)
    from training.pipeline import make_head

    with open_backbone(backbone) as checkpoint:
        head = make_head(checkpoint, corpus, settings, about or corpus.name)
    head.save(out)
    typer.echo(f"Wrote the head to {out}.", err=True)


@cli.command()
def export(
    head: HeadOption,
    name: Annotated[str | None, typer.Option(help="Else the head's directory name.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    store: StoreOption = None,
) -> None:
    """Assemble an artifact from a head and publish it in the store."""
    build(backbone=backbone, head=head, name=name, store=store)


@cli.command()
def evaluate(
    stsb: Annotated[Path, typer.Option(help="An STS benchmark file, sts-dev.csv or sts-test.csv.")],
    model: Annotated[
        str, typer.Option(help="Artifact whose served answers are measured.")
    ] = "default",
    head: HeadOption = HEADS / "default",
    backbone: Annotated[str | None, typer.Option(help="Else the one it was trained on.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="The head's, to centre the control.")] = None,
    record: Annotated[bool, typer.Option(help="Keep the served scores in the head.")] = False,
    store: StoreOption = None,
) -> None:
    """Compare served mixtures with pooling and with an untrained control, on STSb."""
    from training.evaluate.report import compare

    models = Store(load_settings(store=store).store)
    report = compare(stsb, model, Head.load(head), models, backbone, corpus)
    typer.echo(report.text)
    if record:
        report.record(head)


def main() -> NoReturn:
    """Entry point of `lattemix-train`."""
    complete(cli, "lattemix-train")
