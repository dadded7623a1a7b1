"""The work of `lattemix similarity`, `explain`, `embed` and `rank`."""

import heapq
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray

from lattemix.arguments import Pair, TruncationWarning
from lattemix.bulk.mixtures import StoredMixture
from lattemix.bulk.readers import read_pairs, read_texts
from lattemix.bulk.writers import INTEGER, NUMBER, TEXT, Column, Format, Origin, Row, open_writer
from lattemix.client import Client
from lattemix.responses import (
    DimContribution,
    EncodedText,
    PairSimilarity,
    RankResult,
    Rejection,
)
from lattemix.settings import Truncate
from lattemix.stored import check_fingerprint
from model_store import LatteMixError, Metric
from model_store.calibration import Calibration

if TYPE_CHECKING:
    from lattemix.model import Model

AnyModel: TypeAlias = "Model | Client"
T = TypeVar("T")
Result = TypeVar("Result")

_CUTOFF = 0.01  # smallest weight of a sparse mixture


@contextmanager
def open_model(url: str | None, model: str | None, store: Path | None) -> Iterator[AnyModel]:
    """Connect to a model of the server at `url`, or load one in this process."""
    if url is not None and store is not None:
        raise LatteMixError("--url cannot be combined with --store: the server has its own models.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # `Rows.report` says it
        if url is not None:
            with Client(url, model=model) as client:
                yield client
        else:
            from lattemix.loading import load  # needs ONNX Runtime, which a client does not

            yield load(model, store=store)


@dataclass
class Rows(Generic[T]):
    """The rows of an input, and counts of what became of them."""

    items: Iterable[T]
    total: int | None = None  # if known
    progress_bar: bool = False
    done: int = 0
    truncated: int = 0  # sentences
    rejected: int = 0
    first_rejection: Rejection | None = None

    @classmethod
    def read(cls, read: Callable[[Path], Iterable[T]], file: Path, out: Path | None) -> "Rows[T]":
        """Read a file; show a progress bar on a terminal that does not show the results."""
        # Read twice: an invalid line is better found before hours of work than after.
        total = sum(1 for _ in read(file)) if file.is_file() else None
        progress_bar = sys.stderr.isatty() and not (out is None and sys.stdout.isatty())
        return cls(read(file), total, progress_bar)

    def process(
        self, function: Callable[[Iterable[T]], Iterable[Result | Rejection]]
    ) -> Iterator[tuple[T, Result | Rejection]]:
        """Yield each row with its result."""
        items, arguments = tee(self.items)  # buffers the rows in flight
        for item, result in zip(self._shown(items), function(arguments), strict=True):
            self.done += 1
            if isinstance(result, Rejection):
                self.rejected += 1
                self.first_rejection = self.first_rejection or result
            yield item, result

    def report(self, model: AnyModel) -> None:
        """Print how many sentences were truncated and rows rejected; exit with 1 for the latter."""
        if self.truncated:
            limit = model.info().max_input_length
            note = f"{self.truncated:,} sentences had more than {limit} tokens and were truncated"
            typer.echo(f"Note: {note}.", err=True)
        if self.first_rejection:
            index, reason = self.first_rejection.index, self.first_rejection.reason
            rejected = f"{self.rejected:,} of {self.done:,} rows were rejected"
            typer.echo(f"{rejected}; the first is row {index + 1:,}: {reason}", err=True)
            raise typer.Exit(1)

    def _shown(self, items: Iterable[T]) -> Iterable[T]:
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:
            return items
        bar: Iterable[T] = tqdm(
            items, total=self.total, unit=" rows", unit_scale=True, disable=not self.progress_bar
        )
        return bar


def pair_rows(a: str | None, b: str | None, file: Path | None, out: Path | None) -> Rows[Pair]:
    """Return two sentences, or the pairs of a file."""
    if file is None and a is not None and b is not None:
        _check_unicode(a, b)
        return Rows([(a, b)])
    if file is None or a is not None:
        raise LatteMixError("Give two sentences, or --file.")
    return Rows.read(read_pairs, file, out)


def text_rows(texts: Sequence[str] | None, file: Path | None, out: Path | None) -> Rows[str]:
    """Return sentences, or those of a file."""
    if file is None and texts:
        _check_unicode(*texts)
        return Rows(texts)
    if file is None or texts:
        raise LatteMixError("Give sentences, or --file.")
    return Rows.read(read_texts, file, out)


def _check_unicode(*texts: str) -> None:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise LatteMixError("A sentence on the command line is not UTF-8 text.") from None


def print_similarities(
    model: AnyModel, pairs: Rows[Pair], metrics: Sequence[Metric], truncate: Truncate | None
) -> None:
    """Print the similarities of a pair, one metric per line."""
    for similarities in model.iter_similarity(pairs.items, metrics, truncate=truncate):
        if isinstance(similarities, Rejection):
            raise LatteMixError(similarities.reason)
        for name in metrics:
            typer.echo(f"{name:<13} {getattr(similarities, name):.4f}")
        if calibration := _calibration(model, *metrics):
            value = getattr(similarities, calibration.kind)
            typer.echo(f"{calibration.kind:<13} {_format(calibration, value)}")
        pairs.truncated += sum(similarities.truncated)
    pairs.report(model)


def print_explanation(
    model: AnyModel, a: str, b: str, metric: Metric | None, truncate: Truncate | None
) -> None:
    """Print aligned words and the latent dims that contribute most and least."""
    _check_unicode(a, b)
    explained = model.explain(a, b, metric=metric, truncate=truncate)
    typer.echo(f"{explained.metric:<13} {explained.similarity:.4f}\n\nAligned words:")
    for link in sorted(explained.alignment.links, key=lambda link: -link.similarity):
        words = f"{explained.a.words[link.a].text} ~ {explained.b.words[link.b].text}"
        typer.echo(f"  {link.similarity:.3f}  {words}")
    latents = explained.latents
    for title, dims in (("Shared", latents.agree), ("Unshared", latents.disagree)):
        typer.echo(f"\n{title} meanings:")
        for dim in dims:
            typer.echo(f"  {dim.contribution:+.3f}  {_meaning(dim)}")
    Rows([a, b], truncated=sum(explained.truncated)).report(model)


def _meaning(dim: DimContribution) -> str:
    """Describe the dominant classes of both sentences, by their words if these are known."""
    classes = (dim.a,) if dim.a.index == dim.b.index else (dim.a, dim.b)
    return " | ".join(
        ", ".join(dominant.words) if dominant.words else f"class {dominant.index} of {dim.dim}"
        for dominant in classes
    )


def write_similarities(
    model: AnyModel,
    pairs: Rows[Pair],
    metrics: Sequence[Metric],
    truncate: Truncate | None,
    out: Path | None,
) -> None:
    """Write the similarities of every pair."""

    def compare(items: Iterable[Pair]) -> Iterable[PairSimilarity | Rejection]:
        return model.iter_similarity(items, metrics, truncate=truncate)

    scores: dict[str, Column] = dict.fromkeys(metrics, NUMBER)
    if calibration := _calibration(model, *metrics):
        scores[calibration.kind] = NUMBER
    columns = {"a": TEXT, "b": TEXT, **scores, "error": TEXT}
    with open_writer(out, columns, _origin(model)) as write:
        for (a, b), result in pairs.process(compare):
            row: dict[str, object] = {"a": a, "b": b}
            if isinstance(result, Rejection):
                row["error"] = result.reason
            else:
                row |= {name: getattr(result, name) for name in scores}
                pairs.truncated += sum(result.truncated)
            write(row)
    pairs.report(model)


def write_mixtures(
    model: AnyModel, texts: Rows[str], truncate: Truncate | None, form: Format, out: Path | None
) -> None:
    """Write the mixture of every sentence."""

    def encode(items: Iterable[str]) -> Iterable[EncodedText | Rejection]:
        return model.iter_encode(items, truncate=truncate)

    info = model.info()
    shape = (info.latent_dims, info.classes)
    column = Column("float32", shape if form == "dense" else (shape[0] * shape[1],))
    columns = {"text": TEXT, "embedding": column, "error": TEXT}
    with open_writer(out, columns, Origin(info.model, info.fingerprint)) as write:
        for text, result in texts.process(encode):
            if isinstance(result, Rejection):
                write({"text": text, "error": result.reason})
            else:
                write({"text": text, "embedding": _formatted(result.mixture, form)})
                texts.truncated += result.truncated
    texts.report(model)


def _formatted(mixture: NDArray[np.float32], form: Format) -> object:
    if form == "dense":
        return mixture
    weights = mixture.ravel()
    if form == "flat":
        return weights
    (indices,) = np.nonzero(weights >= _CUTOFF)
    return {"indices": indices, "values": weights[indices]}


def write_ranking(
    model: AnyModel,
    query: str,
    texts: Rows[str],
    metric: Metric | None,
    truncate: Truncate | None,
    top_k: int | None,
    out: Path | None,
    plain: bool,
) -> None:
    """Write sentences, most similar to the query first; rejected ones come last.

    Args:
        model: the model that compares them.
        query: the sentence that they are compared with.
        texts: the sentences.
        metric: default: the model's recommended metric.
        truncate: how to handle long texts; default: the model's.
        top_k: maximum number to write.
        out: file; default: standard output.
        plain: print a score and a sentence per line instead.
    """
    origin = _origin(model)
    texts.truncated += _check_query(model, query, metric, truncate)
    rejected: list[Row] = []

    def compare(items: Iterable[str]) -> Iterable[RankResult | Rejection]:
        return model.iter_rank(query, items, metric, truncate=truncate)

    def scored() -> Iterator[Row]:
        for index, (text, result) in enumerate(texts.process(compare)):
            if isinstance(result, Rejection):
                rejected.append({"index": index, "text": text, "error": result.reason})
            else:
                texts.truncated += result.truncated
                yield _ranked_row(result.model_copy(update={"index": index}), text)

    best = heapq.nsmallest(top_k, scored(), _order) if top_k else sorted(scored(), key=_order)
    calibration = _calibration(model, metric)
    if plain:
        for row in best:
            value = f"{_format(calibration, row[calibration.kind])}  " if calibration else ""
            typer.echo(f"{row['score']:.4f}  {value}{row['text']}")
    else:
        _write_ranked([*best, *rejected], out, calibration, origin)
    texts.report(model)


def write_stored_ranking(
    model: AnyModel,
    query: str,
    file: Path,
    stored: Iterable[StoredMixture],
    metric: Metric | None,
    truncate: Truncate | None,
    top_k: int | None,
    out: Path | None,
) -> None:
    """Write the rows of a file of mixtures, most similar to the query first; as `write_ranking`."""
    info = model.info()
    rows = Rows(stored, truncated=_check_query(model, query, metric, truncate))
    rejected: list[Row] = []
    texts: list[str | None] = []
    nothing = np.full(info.latent_dims * info.classes, np.nan, np.float32)

    def mixtures() -> Iterator[NDArray[np.float32]]:
        for mixture, fingerprint, text in rows.items:
            check_fingerprint(f"{file}, row {len(texts) + 1:,}", fingerprint, info)
            if mixture is None:
                rejection = Rejection(len(texts), "it has no mixture.")
                rows.first_rejection = rows.first_rejection or rejection
                rejected.append({"index": len(texts), "text": text, "error": rejection.reason})
            texts.append(text)
            yield nothing if mixture is None else mixture

    results = model.rank_mixtures(
        query,
        mixtures(),
        fingerprint=info.fingerprint,
        metric=metric,
        top_k=top_k,
        truncate=truncate,
    )
    best = [_ranked_row(result, texts[result.index]) for result in results]
    origin = Origin(info.model, info.fingerprint)
    _write_ranked([*best, *rejected], out, _calibration(model, metric), origin)
    rows.done, rows.rejected = len(texts), len(rejected)
    rows.report(model)


def _check_query(
    model: AnyModel, query: str, metric: Metric | None, truncate: Truncate | None
) -> bool:
    """Raise `LatteMixError` for an invalid query; return whether it is truncated."""
    _check_unicode(query)
    (itself,) = model.rank(query, [query], metric=metric, truncate=truncate)
    return itself.truncated


def _ranked_row(result: RankResult, text: str | None) -> Row:
    calibrated = {"probability": result.probability, "rating": result.rating}
    return {"index": result.index, "score": result.score, **calibrated, "text": text}


def _write_ranked(
    rows: Iterable[Row], out: Path | None, calibration: Calibration | None, origin: Origin
) -> None:
    calibrated: dict[str, Column] = {calibration.kind: NUMBER} if calibration else {}
    columns = {"index": INTEGER, "score": NUMBER, **calibrated, "text": TEXT, "error": TEXT}
    with open_writer(out, columns, origin) as write:
        for row in rows:
            write(row)


def _calibration(model: AnyModel, *metrics: Metric | None) -> Calibration | None:
    """Return the model's calibration if it maps one of these metrics; None is the recommended."""
    info = model.info()
    used = {metric or info.recommended_metric for metric in metrics}
    calibration = info.calibration
    return calibration if calibration and calibration.metric in used else None


def _format(calibration: Calibration, value: float) -> str:
    """Format a probability or rating."""
    if calibration.kind == "probability":
        return f"{value:.4f}"
    low, high = calibration.scale
    return f"{value:.1f} ({low:g} to {high:g})"


def _origin(model: AnyModel) -> Origin:
    info = model.info()
    return Origin(info.model, info.fingerprint)


def _order(row: Row) -> float:
    return -float(row["score"])
