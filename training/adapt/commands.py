"""`lattemix-train adapt`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from typer import Option

from lattemix.labelled.pairs import (
    LabelledPairs,
    parse_scale,
    read_labelled,
)
from lattemix.labelled.triplets import read_triplets
from model_store import LatteMixError
from model_store.store import HEADS
from training.cache import DEFAULT_GIGABYTES, VectorCache
from training.options import CacheOption, CacheSize, HeadBackboneOption, notify

commands = typer.Typer()

_ANY_SCALE = (-np.inf, np.inf)  # ranks do not depend on the scale


@commands.command()
def adapt(
    out: Annotated[Path, Option(help="Directory to write the adapted head to.")],
    head: Annotated[str, Option(help="Directory of a head, or name of a shipped one.")] = "default",
    pairs: Annotated[
        Path | None, Option(help="CSV, TSV, .jsonl or .parquet with columns a, b, label.")
    ] = None,
    triplets: Annotated[
        Path | None, Option(help="The same with columns anchor, positive, negative.")
    ] = None,
    columns: Annotated[
        str | None, Option(help="Columns of both sentences and the label: A,B,LABEL.")
    ] = None,
    scale: Annotated[
        str | None, Option(help="Lowest and highest label of ratings, as in 0,5.")
    ] = None,
    dev: Annotated[
        list[Path] | None,
        Option(help="Labelled pairs of other kinds, or an sts-dev.csv, to report on; repeatable."),
    ] = None,
    max_loss: Annotated[
        float, Option(min=0, help="Points that may be lost on a --dev file.")
    ] = 1.0,
    seed: Annotated[int, Option(min=0, help="Seed of the folds and batches.")] = 0,
    backbone: HeadBackboneOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Adapt a head to labelled pairs or triplets; writes nothing unless held-out ones improve."""
    if (pairs is None) == (triplets is None):
        raise LatteMixError("Pass either --pairs or --triplets.")
    named = columns.split(",") if columns else None
    labelled = read_labelled(pairs, named, parse_scale(scale)).check() if pairs else None
    ranked = read_triplets(triplets).check() if triplets else None
    others = [read_dev(path) for path in dev or ()]
    from training.adapt.examples import from_pairs, from_triplets, without
    from training.adapt.job import Adapt

    if labelled:
        examples = from_pairs(labelled)
    else:
        assert ranked
        examples = from_triplets(ranked)
    sets, notes = without(others, set(examples.sentences))
    vectors = VectorCache(cache, cache_gb)
    Adapt(out, head_directory(head), examples, sets, vectors, backbone, seed, max_loss, notes).run(
        notify
    )


def head_directory(name: str) -> Path:
    """The directory of a head: itself, or a shipped one."""
    shipped = HEADS / name
    return shipped if not Path(name).exists() and shipped.is_dir() else Path(name)


def read_dev(path: Path) -> LabelledPairs:
    """Read labelled pairs, or a tab-separated STS file, with labels as they are."""
    if _is_tab_separated(path):
        from training.evaluate.sets import read_file

        read = read_file(path)
        gold = np.array(read.gold)
        return LabelledPairs(name=read.name, a=read.a, b=read.b, labels=gold, scale=_ANY_SCALE)
    found = read_labelled(path, scale=_ANY_SCALE)
    return replace(found, name=path.name)


def _is_tab_separated(path: Path) -> bool:
    if path.suffix not in (".csv", ".tsv", ".txt"):
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        columns = file.readline().split("\t")
    return len(columns) >= 3 and not {"label", "label\n"} & {*columns}
