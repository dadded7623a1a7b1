"""The meaning of latent classes: for each class, the corpus words with the largest share in it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lattemix.build.head import Floats, Head, HeadError
from lattemix.tokenization import Tokenizer
from model_store.latents import LATENTS, LatentClass, Latents, write
from training.cache import VectorCache
from training.encoding import EncodedCorpus, open_corpus
from training.recipe import Recipe

SHOWN = 8  # words per class
_MAX_SHARDS = 16
_MIN_TOKENS, _MAX_WORDS = 4, 8192  # tokens of a word; words, the most frequent ones
_PRIOR = 4  # pseudo-tokens of average usage added to every word, so that rare words rank lower
_CHUNK = 2048  # tokens whose distributions are in memory at once


def meanings(head: Head, encoded: EncodedCorpus, recipe: Recipe) -> Latents:
    """The top words and the usage of each class: [L][C].

    A word's share in a class is the mean over its tokens, smoothed by `_PRIOR`.
    """
    shards = encoded.shards_read(recipe)[:_MAX_SHARDS]
    tokenizer = Tokenizer(encoded.backbone.checkpoint.tokenizer, encoded.backbone.max_tokens)
    ignored = encoded.backbone.checkpoint.ignored_ids
    words = [_words(tokenizer, encoded.corpus.shard(index), ignored) for index in shards]
    frequencies = Counter(word for shard in words for word in shard if word)
    common = frequencies.most_common(_MAX_WORDS)
    vocabulary = [word for word, count in common if count >= _MIN_TOKENS]
    rows = {word: row for row, word in enumerate(vocabulary)}
    width = head.spec.latent_dims * head.spec.classes
    sums, usage = np.zeros((len(vocabulary), width), np.float32), np.zeros(width)
    counts, tokens = np.zeros(len(vocabulary), np.int64), 0
    for index, shard in zip(shards, words, strict=True):
        row = np.array([rows.get(word or "", -1) for word in shard])  # [T]
        for start, distributions in _distributions(head, encoded, index):
            usage += distributions.sum(axis=0, dtype=np.float64)
            tokens += len(distributions)
            _add(sums, counts, row[start : start + len(distributions)], distributions)
    usage /= tokens
    shares = sums + _PRIOR * usage.astype(np.float32)
    shares /= counts[:, None].astype(np.float32) + _PRIOR  # [V, L*C]
    classes = [
        LatentClass(usage=round(float(usage[column]), 4), words=_top(vocabulary, shares[:, column]))
        for column in range(width)
    ]
    return [
        classes[start : start + head.spec.classes] for start in range(0, width, head.spec.classes)
    ]


def describe(
    directory: Path,
    files: Sequence[Path],
    cache: VectorCache,
    columns: Sequence[str] = (),
    backbone: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> None:
    """Write the meanings of a finished head's classes into its directory."""
    head = Head.load(directory)
    if head.spec.model != "categorical":
        raise HeadError(f"{directory} is of the {head.spec.model} model, which has no classes.")
    with open_corpus(head, files, cache, columns, backbone=backbone) as encoded:
        trained, sentences = head.spec.training.get("sentences"), encoded.corpus.sentences
        if trained is not None and trained != sentences:
            notify(
                f"Note: the head was trained on {trained:,.0f} sentences; "
                f"this corpus has {sentences:,}."
            )
        latents = meanings(head, encoded, Recipe(**head.spec.recipe))
    write(latents, str(head.spec.sha256), directory)
    notify(f"Wrote {directory / LATENTS}; export the head again to serve it.")


def _words(
    tokenizer: Tokenizer, sentences: Sequence[str], ignored: Sequence[int]
) -> list[str | None]:
    """The lower-case word of each token that is not ignored; None for tokens without letters."""
    words: list[str | None] = []
    for sentence in sentences:
        tokens, spans = tokenizer.parse(sentence)
        known = [span for span, id_ in zip(spans, tokens.ids, strict=True) if id_ not in ignored]
        bounds: dict[int | None, tuple[int, int]] = {}
        for span in known:
            start, _ = bounds.get(span.word, (span.start, 0))
            bounds[span.word] = (start, span.end)
        bounds[None] = (0, 0)  # special tokens
        spellings = {word: sentence[slice(*bound)].lower() for word, bound in bounds.items()}
        words += [spellings[span.word] for span in known]
    return [word if word and any(map(str.isalpha, word)) else None for word in words]


def _distributions(head: Head, encoded: EncodedCorpus, index: int) -> Iterator[tuple[int, Floats]]:
    """The distributions of a shard's tokens in chunks [T, L*C], each with its first index."""
    vectors = encoded.shard(index).vectors
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].astype(np.float32)
        yield start, head.distributions(chunk).reshape(len(chunk), -1)


def _add(
    sums: Floats, counts: NDArray[np.int64], rows: NDArray[np.int64], distributions: Floats
) -> None:
    """Add each token's distributions to the row of its word; row -1 is skipped."""
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    if len(order):
        unique, first, tokens = np.unique(rows[order], return_index=True, return_counts=True)
        sums[unique] += np.add.reduceat(distributions[order], first, axis=0)
        counts[unique] += tokens


def _top(vocabulary: Sequence[str], shares: Floats) -> dict[str, float]:
    """The words with the largest shares."""
    best = np.argsort(-shares, kind="stable")[:SHOWN]
    return {vocabulary[row]: round(float(shares[row]), 2) for row in best}
