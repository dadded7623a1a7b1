"""Probe sentences, ordinary and odd, on which an exported graph must match the reference."""

import tokenizers

from lattemix.build.backbones import Checkpoint

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
    # Longer than any backbone reads: truncation must match as well.
    "All happy families are alike, and this sentence goes on without end, " * 60,
)


def probes_for(checkpoint: Checkpoint) -> tuple[str, ...]:
    """`PROBES`; for word vectors, which may lack English words, also groups of their own words."""
    if not checkpoint.is_static:
        return PROBES
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer))
    words = [tokenizer.id_to_token(i) or "" for i in range(min(40, tokenizer.get_vocab_size() - 1))]
    return (*PROBES, *(" ".join(words[i : i + 5]) for i in range(0, len(words), 5)))
