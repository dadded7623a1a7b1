"""Sentences of every subject, freely licensed: WordNet's definitions and examples.

`python -m training.wordnet /usr/share/wordnet > wordnet.txt` writes the corpus of the head we ship.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from model_store import LatteMixError

_FEWEST_WORDS = 4


def sentences(directory: Path) -> Iterator[str]:
    """Yield the definitions and the quoted examples of four words or more, in the files' order.

    A line of `data.noun` and its like ends in ` | definition; "an example"; "another"`.
    """
    files = sorted(directory.glob("data.*"))
    if not files:
        raise LatteMixError(f"{directory} holds no WordNet: it has no data.noun and its like.")
    for file in files:
        for line in file.read_text(encoding="latin-1").splitlines():
            _, bar, gloss = line.partition(" | ")
            if bar and not line.startswith(" "):  # the licence's lines are indented
                definition = re.split(r';\s*"', gloss)[0]
                texts = [definition, *re.findall(r'"([^"]+)"', gloss)]
                yield from (text for text in map(_tidy, texts) if _is_sentence(text))


def _tidy(text: str) -> str:
    return text.strip(' ;"')


def _is_sentence(text: str) -> bool:
    return len(text.split()) >= _FEWEST_WORDS


if __name__ == "__main__":
    try:
        for sentence in sentences(Path(sys.argv[1])):
            print(sentence)
    except (IndexError, LatteMixError) as error:
        sys.exit(f"usage: python -m training.wordnet DIRECTORY > FILE ({error})")
