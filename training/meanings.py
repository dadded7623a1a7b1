"""What latent classes mean: the words of the training corpus that are most in each of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import open_backbone
from lattemix.build.head import Floats, Head, HeadError
from lattemix.tokenization import Tokenizer
from model_store.latents import LATENTS, LatentClass, Latents, write
from training.backbones import load
from training.cache import VectorCache
from training.corpus import prepare
from training.pipeline import Encoded
from training.readers import read
from training.recipe import Recipe

SHOWN = 8  # words of a class
_MOST_SHARDS = 16  # of the corpus, which are looked at
_FEWEST, _MOST_WORDS = 4, 8192  # tokens of a word, and words, the most frequent ones
_PRIOR = 4  # tokens that every word is taken to have had in all classes as they are used
_CHUNK = 2048  # tokens whose distributions are in memory at once


def meanings(head: Head, encoded: Encoded, recipe: Recipe) -> Latents:
    """The words that are most in each class, and how much the class is used: [L][C].

    A word is in a class as much as its tokens are, on average; one that was seen seldom, a little
    less.
    """
    shards = encoded.needed(recipe)[:_MOST_SHARDS]
    tokenizer = Tokenizer(encoded.backbone.checkpoint.tokenizer, encoded.backbone.max_tokens)
    unknown = encoded.backbone.checkpoint.unknown_id
    spelled = [_spelled(tokenizer, encoded.corpus.shard(index), unknown) for index in shards]
    vocabulary = _frequent(spelled)
    places = {word: place for place, word in enumerate(vocabulary)}
    width = head.spec.latent_dims * head.spec.classes
    sums, usage = np.zeros((len(vocabulary), width), np.float32), np.zeros(width)
    counts, tokens = np.zeros(len(vocabulary), np.int64), 0
    for index, words in zip(shards, spelled, strict=True):
        place = np.array([places.get(word or "", -1) for word in words])  # [T]
        for start, distributions in _distributions(head, encoded, index):
            usage += distributions.sum(axis=0, dtype=np.float64)
            tokens += len(distributions)
            _add(sums, counts, place[start : start + len(distributions)], distributions)
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
    tell: Callable[[str], None] = lambda message: None,
) -> None:
    """Write what a finished head's classes mean beside it, by the corpus it was trained on."""
    head = Head.load(directory)
    if head.spec.model != "categorical":
        raise HeadError(f"{directory} is of the {head.spec.model} model, which has no classes.")
    with (
        open_backbone(backbone or head.spec.backbone.name) as checkpoint,
        TemporaryDirectory() as temporary,
    ):
        checkpoint.check_digest(head.spec.backbone)
        recipe = Recipe(**head.spec.recipe)
        corpus = prepare(read(files, columns), Path(temporary), recipe.max_sentences)
        reader = load(checkpoint, head.spec.max_tokens, head.spec.backbone.layer)
        if corpus.sentences != (trained := head.spec.training.get("sentences")):
            tell(f"Note: it was trained on {trained:,.0f} sentences, not {corpus.sentences:,}.")
        latents = meanings(head, Encoded(reader, corpus, cache), recipe)
    write(latents, str(head.spec.sha256), directory)
    tell(f"Wrote {directory / LATENTS}; export the head again to serve it.")


def _spelled(
    tokenizer: Tokenizer, sentences: Sequence[str], unknown: int | None
) -> list[str | None]:
    """The word that each known token belongs to, in small letters, if it has any letter."""
    found: list[str | None] = []
    for sentence in sentences:
        tokens, pieces = tokenizer.parse(sentence)
        pieces = [p for p, token in zip(pieces, tokens.ids, strict=True) if token != unknown]
        spans: dict[int, tuple[int, int]] = {}
        for piece in pieces:
            if piece.word is not None:
                start, _ = spans.get(piece.word, (piece.start, 0))
                spans[piece.word] = (start, piece.end)
        words = {word: sentence[start:end].lower() for word, (start, end) in spans.items()}
        found += [words.get(piece.word) if piece.word is not None else None for piece in pieces]
    return [word if word and any(map(str.isalpha, word)) else None for word in found]


def _frequent(spelled: Sequence[Sequence[str | None]]) -> list[str]:
    counts = Counter(word for words in spelled for word in words if word)
    return [word for word, count in counts.most_common(_MOST_WORDS) if count >= _FEWEST]


def _distributions(head: Head, encoded: Encoded, index: int) -> Iterator[tuple[int, Floats]]:
    """Those of a shard's tokens [T, L*C], some at a time, each time with the place of the first."""
    vectors = encoded.shard(index).vectors
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].astype(np.float32)
        yield start, head.distributions(chunk).reshape(len(chunk), -1)


def _add(
    sums: Floats, counts: NDArray[np.int64], places: NDArray[np.int64], distributions: Floats
) -> None:
    """Add each token's distributions to the sums of its word."""
    order = np.argsort(places, kind="stable")
    order = order[places[order] >= 0]
    if not len(order):
        return
    found, first, times = np.unique(places[order], return_index=True, return_counts=True)
    sums[found] += np.add.reduceat(distributions[order], first, axis=0)
    counts[found] += times


def _top(vocabulary: Sequence[str], shares: Floats) -> dict[str, float]:
    """The words with the largest shares."""
    best = np.argsort(-shares, kind="stable")[:SHOWN]
    return {vocabulary[place]: round(float(shares[place]), 2) for place in best}
