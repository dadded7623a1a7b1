"""Plant near-duplicates in a file of sentences."""

import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.corpora.wordnet import DIRECTORY

_LOWER_CASE = re.compile(r"[a-z]+")
_CLAUSES = (
    ", according to one report",
    ", as is well known",
    ", at least in part",
    ", it is said",
    ", to be precise",
    " and so on",
    " (see the notes)",
    ", as mentioned before",
    ", among other things",
    " in most cases",
)
_WORDS_OF_SOURCE = range(6, 41)

Edit = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class Planted:
    """A copy with an edit."""

    copy: int  # its row
    source: int  # row of the sentence that was edited
    kind: str  # of edit


def plant(sentences: list[str], share: float, seed: int = 0) -> tuple[list[str], list[Planted]]:
    """Return sentences and edited copies of some of them, shuffled, and which rows are copies.

    Every sentence is edited at most once, and no two rows are equal.

    Args:
        sentences: distinct sentences.
        share: share of copies in the result.
        seed: of all random choices.
    """
    rng = random.Random(seed)
    edits: dict[str, Edit] = {**_EDITS, "synonyms": Synonyms(DIRECTORY)}
    total = len(sentences) + round(share / (1 - share) * len(sentences))
    texts = set(sentences)
    rows: list[tuple[str, int | None, str]] = [(text, None, "") for text in sentences]
    sources = [i for i, text in enumerate(sentences) if len(text.split()) in _WORDS_OF_SOURCE]
    rng.shuffle(sources)
    kinds = list(edits)
    for source in sources:
        if len(rows) == total:
            break
        kind = kinds[len(rows) % len(kinds)]
        text = edits[kind](sentences[source], rng)
        if text not in texts:  # an edit may change nothing
            texts.add(text)
            rows.append((text, source, kind))
    order = list(range(len(rows)))
    rng.shuffle(order)
    positions = {row: position for position, row in enumerate(order)}
    planted = [
        Planted(positions[row], positions[source], kind)
        for row, (_, source, kind) in enumerate(rows)
        if source is not None
    ]
    return [rows[row][0] for row in order], planted


def _case(text: str, rng: random.Random) -> str:
    return rng.choice([text.lower(), text.upper(), text.title()])


def _punctuation(text: str, rng: random.Random) -> str:
    bare = text.translate(str.maketrans("", "", string.punctuation))
    return rng.choice([bare, text.rstrip(".") + "!", text.replace(" ", "  "), f'"{text}"'])


def _order(text: str, rng: random.Random) -> str:
    """Swap the parts around a comma, or else two neighbouring words, twice."""
    body = text.rstrip(".!?")
    end = text[len(body) :]
    first, comma, second = body.partition(", ")
    if comma:
        return f"{second}, {first}{end}"
    words = body.split()
    for _ in range(2):
        i = rng.randrange(len(words) - 1)
        words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(words) + end


def _clause(text: str, rng: random.Random) -> str:
    body = text.rstrip(".!?")
    return body + rng.choice(_CLAUSES) + text[len(body) :]


class Synonyms:
    """Replaces up to two words by WordNet synonyms of their most frequent senses."""

    def __init__(self, directory: Path) -> None:
        self._synonyms: dict[str, str] = {}
        for part in ("noun", "verb", "adj", "adv"):
            words = _synsets(directory / f"data.{part}")
            for word, offset in _first_senses(directory / f"index.{part}"):
                others = [other for other in words[offset] if other != word]
                if others:
                    self._synonyms.setdefault(word, others[0])

    def __call__(self, text: str, rng: random.Random) -> str:
        """Return the text with up to two words replaced."""
        words = text.split(" ")
        replaceable = [
            i for i, word in enumerate(words) if word in self._synonyms and len(word) > 3
        ]
        for i in rng.sample(replaceable, min(2, len(replaceable))):
            words[i] = self._synonyms[words[i]]
        return " ".join(words)


def _synsets(path: Path) -> dict[str, list[str]]:
    """Return the single lower-case words of each synonym set, by its offset in the file."""
    synsets = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith(" "):  # the lines of the licence are indented
            offset, _, _, count, *rest = line.split()
            words = [word.partition("(")[0] for word in rest[: 2 * int(count, 16) : 2]]
            synsets[offset] = [word for word in words if _LOWER_CASE.fullmatch(word)]
    return synsets


def _first_senses(path: Path) -> list[tuple[str, str]]:
    """Return each word and the offset of its most frequent synonym set."""
    senses = []
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith(" "):
            word, _, count, *rest = line.split()
            senses.append((word, rest[-int(count)]))
    return senses


_EDITS: dict[str, Edit] = {
    "case": _case,
    "punctuation": _punctuation,
    "order": _order,
    "clause": _clause,
}
