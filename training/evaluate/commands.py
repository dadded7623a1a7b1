"""Commands of `lattemix-train` that measure: evaluate, limits, overlap, words."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from lattemix.options import StoreOption
from lattemix.settings import ModelSettings, read_settings
from model_store import Artifact, LatteMixError, Store
from model_store.choice import choose
from training.cache import DEFAULT_GIGABYTES, VectorCache
from training.options import (
    DEFAULT_BACKBONE,
    DEFAULT_SETS,
    BackboneOption,
    CacheOption,
    CacheSize,
    ColumnOption,
    CorpusOption,
    DataOption,
    HeadBackboneOption,
    ModelOption,
    ReportOption,
    SetsOption,
    notify,
)
from training.readers import check as check_corpus
from training.readers import read, read_exclusion

commands = typer.Typer()


@commands.command()
def evaluate(
    data: DataOption,
    sets: SetsOption = DEFAULT_SETS,
    model: ModelOption = None,
    head: Annotated[
        list[Path] | None, Option(help="Directory of a head; repeatable, one per seed.")
    ] = None,
    backbone: Annotated[
        str | None, Option(help="Backbone of the head or model; alone, only poolings are measured.")
    ] = None,
    layer: Annotated[
        int | None, Option(min=0, help="Layer of a backbone alone; default: the last.")
    ] = None,
    url: Annotated[str | None, Option(help="Running server to measure.")] = None,
    controls: Annotated[
        bool, Option("--controls", help="Also measure randomly initialised encoders.")
    ] = False,
    corpus: Annotated[list[Path] | None, Option(help="Corpus to centre controls with.")] = None,
    exclude: Annotated[
        list[Path] | None,
        Option(help="Folder or file of sentences; pairs with one of them are left out."),
    ] = None,
    column: ColumnOption = None,
    out: Annotated[
        Path | None, Option(help="Directory for the report: Markdown, JSON, CSV, plots.")
    ] = None,
    record: Annotated[bool, Option("--record", help="Store the scores in the first head.")] = False,
    store: StoreOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Measure correlation with human scores: mixtures, poolings, controls, served models."""
    check_corpus(corpus or (), column or ())
    from training.evaluate import tables
    from training.evaluate.evaluation import Evaluation, record_scores

    artifact = _served_artifact(model, store) if model else None
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
        read_exclusion(exclude or (), column or ()),
    )
    if record and not evaluation.head_directories:
        raise LatteMixError("--record stores scores in a head: name it with --head.")
    report = evaluation.run()
    tables.show(report)
    if out:
        from training.plots import draw_evaluation

        tables.write(report, out)
        draw_evaluation(report, out)
    if record:
        precision = artifact.manifest.precision if artifact else "fp32"
        record_scores(report, evaluation.head_directories[0], precision)


@commands.command()
def limits(
    model: ModelOption = None,
    head: Annotated[
        Path | None, Option(help="Directory of a head; default without a model: the default's.")
    ] = None,
    backbone: HeadBackboneOption = None,
    data: Annotated[
        Path | None, Option(help="CSV of kind, sentence, changed, paraphrase; default: ours.")
    ] = None,
    out: ReportOption = None,
    store: StoreOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Compare role swaps, negations and changed numbers with paraphrases."""
    from training.evaluate import tables
    from training.evaluate.evaluation import Evaluation
    from training.evaluate.limits import TRIPLES, measure_limits, read_triples

    triples = read_triples(data or TRIPLES)
    artifact = _served_artifact(model, store) if model else None
    heads = [head] if head else []
    evaluation = Evaluation((), (), VectorCache(cache, cache_gb), heads, artifact, backbone)
    report = measure_limits(evaluation, triples)
    tables.show(report)
    if out:
        tables.write(report, out)


@commands.command()
def overlap(
    corpus: CorpusOption,
    data: DataOption,
    sets: SetsOption = DEFAULT_SETS,
    column: ColumnOption = None,
    out: ReportOption = None,
) -> None:
    """Count the evaluation sentences that a corpus contains."""
    check_corpus(corpus, column or ())
    from training.evaluate import tables
    from training.evaluate.overlap import Overlap
    from training.evaluate.sets import read_sets
    from training.exclusion import Exclusion

    pairs, left_out = read_sets(data, sets.split(","))
    report = Overlap(pairs, Exclusion(read(corpus, column or ())), left_out)
    tables.show(report)
    if out:
        tables.write(report, out)


@commands.command()
def words(
    data: Annotated[Path, Option(help="Folder of benchmarks with a `words` folder.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    layer: Annotated[
        list[int] | None, Option(help="Layer to measure; repeatable; default: the last.")
    ] = None,
    out: ReportOption = None,
    cache: CacheOption = None,
    cache_gb: CacheSize = DEFAULT_GIGABYTES,
) -> None:
    """Measure a backbone's word vectors: similarity, analogies, categories."""
    from training.evaluate import tables
    from training.evaluate.words import measure_words

    report = measure_words(backbone, layer or (), data, VectorCache(cache, cache_gb))
    tables.show(report)
    if out:
        tables.write(report, out)


def _served_artifact(model: str, store: Path | None) -> Artifact:
    """The model in the requested precision, or in the one that would be served here."""
    from lattemix.session import likely_device

    models = Store(read_settings(ModelSettings, store=store).store)
    artifact, reason = choose(models, model, likely_device("auto"))
    notify(f"{artifact.manifest.reference}: {reason}")
    return artifact
