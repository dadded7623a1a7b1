"""Labelled pairs, and files of them as a browser uploads them."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TypedDict

Row = tuple[str, str, float]


class File(TypedDict):
    name: str
    mimeType: str
    buffer: bytes


# Sentences, and ratings of their similarity from 0 to 5.
RATED: list[Row] = [
    ("A man is eating.", "A man is having a meal.", 4.4),
    ("A dog runs in the park.", "A dog is running through the park.", 4.8),
    ("She closed the window.", "She shut the window.", 5),
    ("The train was late.", "The train arrived late.", 4.2),
    ('He said "no" and left.', 'He left after he said "no".', 4.5),
    ("How do I reset my password?", "How can I reset my password?", 5),
    ("Children play football.", "Kids are playing soccer.", 4.6),
    ("The soup is too salty.", "There is too much salt in the soup.", 4.8),
    ("It rained all night.", "It was raining the whole night.", 4.9),
    ("Can I pay by credit card?", "Do you accept credit cards?", 4.4),
    ("The shop opens at nine.", "The shop opens at nine o'clock.", 4.9),
    ("My parcel has not arrived.", "My parcel still is not here.", 4.5),
    ("A woman slices an onion.", "A woman is cutting an onion.", 4.3),
    ("The film, though long, was good.", "The film was good but long.", 4.2),
    ("Two boys climb a tree.", "Two boys are climbing up a tree.", 4.8),
    ("A man is eating.", "A man is sleeping.", 1.2),
    ("A dog runs in the park.", "Share prices fell on Tuesday.", 0),
    ("She closed the window.", "She painted the window.", 1.8),
    ("The train was late.", "The train was full.", 1.6),
    ("He drank his coffee.", "The committee adjourned at noon.", 0),
    ("How do I reset my password?", "What are your opening hours?", 0.6),
    ("Children play football.", "Children do their homework.", 1),
    ("The soup is too salty.", "The sea was calm.", 0.4),
    ("It rained all night.", "The recipe needs two eggs.", 0),
    ("Can I pay by credit card?", "Can I return a parcel?", 0.8),
    ("The shop opens at nine.", "The cat sat by the window.", 0),
    ("My parcel has not arrived.", "The band played three songs.", 0.2),
    ("A woman slices an onion.", "A woman rides a horse.", 0.8),
    ("The film was good.", "Rain is expected tomorrow.", 0),
    ("Two boys climb a tree.", "The museum is closed on Mondays.", 0),
]
# The same pairs, with 1 for a match.
BINARY: list[Row] = [(a, b, int(rating > 3)) for a, b, rating in RATED]


def labelled_file(
    rows: Iterable[Sequence[object]],
    name: str = "pairs.csv",
    header: Sequence[str] = ("a", "b", "label"),
) -> File:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return raw_file(text.getvalue(), name)


def raw_file(text: str | bytes, name: str = "pairs.csv") -> File:
    content = text.encode() if isinstance(text, str) else text
    return {"name": name, "mimeType": "text/csv", "buffer": content}
