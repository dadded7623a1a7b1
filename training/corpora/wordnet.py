"""WordNet's definitions and examples."""

import re
from collections.abc import Iterator
from pathlib import Path

from training.corpus import CorpusError

DIRECTORY = Path("/usr/share/wordnet")  # of Debian's wordnet-base
_MIN_WORDS = 4


def sentences(directory: Path) -> Iterator[str]:
    """Yield the definitions and the quoted examples of four words or more.

    A line of `data.noun` and the like ends in ` | definition; "an example"; "another"`.
    """
    files = sorted(directory.glob("data.*"))
    if not files:
        raise CorpusError(
            f"{directory} is not a WordNet directory: it has no data.* files, such as data.noun. "
            "Debian's wordnet-base installs one in /usr/share/wordnet; "
            "https://wordnet.princeton.edu has it, too."
        )
    for file in files:
        for line in file.read_text(encoding="latin-1").splitlines():
            _, bar, gloss = line.partition(" | ")
            if bar and not line.startswith(" "):  # the lines of the licence are indented
                definition = re.split(r';\s*"', gloss)[0]
                texts = [definition, *re.findall(r'"([^"]+)"', gloss)]
                stripped = (text.strip(' ;"') for text in texts)
                yield from (text for text in stripped if len(text.split()) >= _MIN_WORDS)
