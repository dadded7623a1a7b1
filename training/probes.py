"""Sentences, ordinary and odd, on which an assembled graph must agree with the reference."""

PROBES: tuple[str, ...] = (
    "A man is eating.",
    "Someone is having lunch.",
    "The stock market fell sharply on Tuesday after the central bank raised interest rates.",
    "Share prices dropped when borrowing became more expensive.",
    "Two children are building a sandcastle by the sea.",
    "no punctuation and no capitals here",
    "a",
    "!?…",
    "naïve café façade, coöperate: déjà vu",
    "机器学习很有趣。",
    "Привет, мир",
    "🙂🚀 emoji 👩‍👩‍👧 family",
    "the the the the the the the the the the the the the the the the",
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "It isn't 3.14159; it's roughly 22/7, they said (incorrectly).",
    # Longer than any backbone takes: the cut is part of what must agree.
    "All happy families are alike, and this sentence goes on without end, " * 60,
)
