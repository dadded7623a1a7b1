"""A freely licensed general-domain corpus: WordNet's definitions and examples.

`python -m training.wordnet /usr/share/wordnet > wordnet.txt` writes the corpus of the default head.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from model_store import LatteMixError

_MIN_WORDS = 4


def sentences(directory: Path) -> Iterator[str]:
    """Yield the definitions and the quoted examples of four words or more.

    A line of `data.noun` and the like ends in ` | definition; "an example"; "another"`.
    """
    files = sorted(directory.glob("data.*"))
    if not files:
        raise LatteMixError(
            f"{directory} is not a WordNet directory: it has no data.* files, such as data.noun."
        )
    for file in files:
        for line in file.read_text(encoding="latin-1").splitlines():
            _, bar, gloss = line.partition(" | ")
            if bar and not line.startswith(" "):  # the lines of the licence are indented
                definition = re.split(r';\s*"', gloss)[0]
                texts = [definition, *re.findall(r'"([^"]+)"', gloss)]
                stripped = (text.strip(' ;"') for text in texts)
                yield from (text for text in stripped if len(text.split()) >= _MIN_WORDS)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m training.wordnet DIRECTORY > FILE")
    try:
        for sentence in sentences(Path(sys.argv[1])):
            print(sentence)
    except LatteMixError as error:
        sys.exit(str(error))
