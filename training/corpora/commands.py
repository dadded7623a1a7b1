"""`lattemix-train corpus`: write a public corpus as text, one sentence per line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from training.corpora import snli, wordnet
from training.corpus import CorpusError

corpus = typer.Typer(
    no_args_is_help=True, help="Write a public corpus as text, one distinct sentence per line."
)

OutOption = Annotated[Path, Option(help="Text file to write.")]


@corpus.command("wordnet")
def write_wordnet(
    out: OutOption,
    source: Annotated[Path, Argument(help="Directory of WordNet's data.* files.")] = (
        wordnet.DIRECTORY
    ),
) -> None:
    """Definitions and examples of WordNet, of 4 words or more."""
    write(wordnet.sentences(source), out)


@corpus.command("wikipedia")
def write_wikipedia(
    out: OutOption,
    source: Annotated[
        Path | None,
        Argument(help="enwik8, enwik8.gz or enwik8.zip; default: downloaded once into the cache."),
    ] = None,
) -> None:
    """Sentences of 5 to 30 words of enwik8: 100 MB of the English Wikipedia of March 2006."""
    from training.corpora import wikipedia

    write(wikipedia.sentences(source, _notify), out)


@corpus.command("snli")
def write_snli(
    out: OutOption,
    source: Annotated[
        Path | None,
        Argument(help="snli_1.0.zip, snli_1.0_train.jsonl or snli_1.0_train.txt, or .gz of these."),
    ] = None,
    pairs: Annotated[int | None, Option(min=1, help="Only the first N pairs.")] = None,
) -> None:
    """Both sentences of SNLI's training pairs."""
    if source is None:
        raise CorpusError(f"SOURCE is missing: download SNLI from {snli.URL} and pass its path.")
    write(snli.sentences(source, pairs), out)


def write(sentences: Iterable[str], out: Path) -> None:
    """Write the distinct, non-empty sentences to `out`, atomically."""
    partial = out.with_name(f"{out.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:  # before the work: it may be impossible
            lines = (" ".join(sentence.split()) for sentence in sentences)
            distinct = dict.fromkeys(line for line in lines if line)
            file.writelines(f"{line}\n" for line in distinct)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    _notify(f"Wrote {len(distinct):,} distinct sentences to {out}.")


def _notify(message: str) -> None:
    typer.echo(message, err=True)
