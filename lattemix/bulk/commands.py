"""Many sentences through the model: the work of `lattemix similarity`, `embed` and `rank`."""

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray

from lattemix.bulk import readers as tables
from lattemix.bulk.writers import INTEGER, NUMBER, TEXT, Column, Format, Row, writing
from lattemix.client import Client, Refusal
from lattemix.model import Model, load
from lattemix.responses import DimContribution
from model_store import LatteMixError, Metric

Pair = tuple[str, str]
T = TypeVar("T")
Found = TypeVar("Found")

_CUTOFF = 0.01  # smallest weight of a sparse mixture


@contextmanager
def connected(url: str | None, model: str | None, store: Path | None) -> Iterator[Client | Model]:
    """A client of the server at `url`, or else of the same service in this process."""
    if url is None:
        yield load(model, store=store)
    elif model is None and store is None:
        with Client(url) as client:
            yield client
    else:
        raise LatteMixError("--model and --store are for this process, --url for another: choose.")


@dataclass
class Rows(Generic[T]):
    """What is asked about, and what became of it."""

    items: Iterable[T]
    total: int | None = None  # if it is known
    bar: bool = False
    done: int = 0
    cut: int = 0
    refused: int = 0
    first_reason: str = ""

    @classmethod
    def read(cls, read: Callable[[Path], Iterable[T]], file: Path, out: Path | None) -> "Rows[T]":
        """Those of a file, with a bar on a terminal that shows no results."""
        # Read once just to look: a wrong line is better found before hours of work than after.
        total = sum(1 for _ in read(file)) if file.is_file() else None
        bar = sys.stderr.isatty() and not (out is None and sys.stdout.isatty())
        return cls(read(file), total, bar)

    def answered(
        self, ask: Callable[[Iterable[T]], Iterable[Found | Refusal]]
    ) -> Iterator[tuple[T, Found | Refusal]]:
        """Each row with its answer."""
        kept, sent = tee(self.items)  # it holds what is in flight
        for item, found in zip(self._shown(kept), ask(sent), strict=True):
            self.done += 1
            if isinstance(found, Refusal):
                self.refused += 1
                self.first_reason = self.first_reason or found.reason
            yield item, found

    def finish(self, client: Client) -> None:
        """Say what was cut or refused; exit with 1 if anything was refused."""
        if self.cut:
            limit = client.info().max_input_length
            note = f"only the first {limit} tokens of a sentence are read; {self.cut:,} had more"
            typer.echo(f"Note: {note}.", err=True)
        if self.refused:
            refused = f"{self.refused:,} of {self.done:,} were refused"
            typer.echo(f"{refused}, the first because: {self.first_reason}", err=True)
            raise typer.Exit(1)

    def _shown(self, items: Iterable[T]) -> Iterable[T]:
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:
            return items
        shown: Iterable[T] = tqdm(
            items, total=self.total, unit=" rows", unit_scale=True, disable=not self.bar
        )
        return shown


def pairs(a: str | None, b: str | None, file: Path | None, out: Path | None) -> Rows[Pair]:
    """Two sentences, or a file of pairs."""
    if file is None and a is not None and b is not None:
        _check_unicode(a, b)
        return Rows([(a, b)])
    if file is None or a is not None:
        raise LatteMixError("Give two sentences, or --file.")
    return Rows.read(tables.read_pairs, file, out)


def sentences(texts: Sequence[str] | None, file: Path | None, out: Path | None) -> Rows[str]:
    """Some sentences, or a file of them."""
    if file is None and texts:
        _check_unicode(*texts)
        return Rows(texts)
    if file is None or texts:
        raise LatteMixError("Give sentences, or --file.")
    return Rows.read(tables.read_texts, file, out)


def _check_unicode(*texts: str) -> None:
    """Refuse what a shell passed on that is no text."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise LatteMixError("A sentence on the command line is not UTF-8 text.") from None


def show(client: Client, pairs: Rows[Pair], metrics: Sequence[Metric]) -> None:
    """Print similarities for people."""
    for found in client.similarity(pairs.items, metrics).similarities:
        for name in metrics:
            typer.echo(f"{name:<13} {getattr(found, name):.4f}")
        pairs.cut += sum(found.truncated)
    pairs.finish(client)


def explain(client: Client, a: str, b: str, metric: Metric | None) -> None:
    """Print why two sentences are similar."""
    found = client.explain(a, b, metric)
    typer.echo(f"{found.metric:<13} {found.similarity:.4f}\n\nWords that meet:")
    for link in sorted(found.alignment.links, key=lambda link: -link.similarity):
        words = f"{found.a.words[link.a].text} ~ {found.b.words[link.b].text}"
        typer.echo(f"  {link.similarity:.3f}  {words}")
    for title, dims in (("Shared", found.latents.agree), ("Unshared", found.latents.disagree)):
        typer.echo(f"\n{title} meanings:")
        for dim in dims:
            typer.echo(f"  {dim.contribution:+.3f}  {_meaning(dim)}")
    Rows([a, b], cut=found.a.truncated + found.b.truncated).finish(client)


def _meaning(dim: DimContribution) -> str:
    """The classes that both sentences are most in, by their words if the model knows them."""
    sides = (dim.a,) if dim.a.index == dim.b.index else (dim.a, dim.b)
    return " | ".join(
        ", ".join(side.words) if side.words else f"class {side.index} of {dim.dim}"
        for side in sides
    )


def compare(client: Client, pairs: Rows[Pair], metrics: Sequence[Metric], out: Path | None) -> None:
    """Write the similarities of every pair."""
    scores = {str(name): NUMBER for name in metrics}
    columns = {"a": TEXT, "b": TEXT, **scores, "error": TEXT}
    with writing(out, columns) as write:
        for (a, b), found in pairs.answered(lambda sent: client.iter_similarity(sent, metrics)):
            row: dict[str, object] = {"a": a, "b": b}
            if isinstance(found, Refusal):
                row["error"] = found.reason
            else:
                row |= {name: getattr(found, name) for name in metrics}
                pairs.cut += sum(found.truncated)
            write(row)
    pairs.finish(client)


def embed(client: Client, texts: Rows[str], form: Format, out: Path | None) -> None:
    """Write the mixture of every sentence."""
    info = client.info()
    shape = (info.latent_dims, info.classes)
    column = Column("float32", shape if form == "dense" else (shape[0] * shape[1],))
    with writing(out, {"text": TEXT, "embedding": column, "error": TEXT}) as write:
        for text, found in texts.answered(client.iter_embed):
            if isinstance(found, Refusal):
                write({"text": text, "error": found.reason})
            else:
                write({"text": text, "embedding": _formed(found.mixture, form)})
                texts.cut += found.truncated
    texts.finish(client)


def _formed(mixture: NDArray[np.float32], form: Format) -> object:
    if form == "dense":
        return mixture
    weights = mixture.ravel()
    if form == "flat":
        return weights
    (indices,) = np.nonzero(weights >= _CUTOFF)
    return {"indices": indices, "values": weights[indices]}


def rank(
    client: Client,
    query: str,
    candidates: Rows[str],
    metric: Metric | None,
    top_k: int | None,
    out: Path | None,
    plainly: bool,
) -> None:
    """Write the candidates, the most similar first; those refused come last.

    Args:
        client: whom to ask.
        query: what they are compared with.
        candidates: the others.
        metric: else the model's own.
        top_k: write only so many.
        out: where to, else standard output.
        plainly: for people, a score and a sentence a line.
    """
    _check_unicode(query)
    # Alone first: if the query is at fault, it is not the candidates that are refused.
    candidates.cut += client.rank(query, [query], metric).query_truncated
    refused: list[Row] = []

    def scored() -> Iterator[Row]:
        answered = candidates.answered(lambda sent: client.iter_rank(query, sent, metric))
        for index, (text, found) in enumerate(answered):
            if isinstance(found, Refusal):
                refused.append({"index": index, "text": text, "error": found.reason})
            else:
                candidates.cut += found.truncated
                yield {"index": index, "score": found.score, "text": text}

    best = heapq.nsmallest(top_k, scored(), _order) if top_k else sorted(scored(), key=_order)
    if plainly:
        for row in best:
            typer.echo(f"{row['score']:.4f}  {row['text']}")
    else:
        columns = {"index": INTEGER, "score": NUMBER, "text": TEXT, "error": TEXT}
        with writing(out, columns) as write:
            for row in [*best, *refused]:
                write(row)
    candidates.finish(client)


def _order(row: Row) -> float:
    return -float(row["score"])
