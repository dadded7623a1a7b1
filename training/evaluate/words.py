"""`lattemix-train words`: word benchmarks on the layers of a backbone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray
from scipy.linalg import eigh

from lattemix.build.backbones import BackboneError, open_backbone
from lattemix.build.backbones.words import TABLE, UNKNOWN
from model_store import LatteMixError
from training.backbones import Backbone, load
from training.cache import VectorCache
from training.evaluate.evaluation import MAX_TOKENS
from training.evaluate.scores import in_shards
from training.evaluate.sets import TEST_SETS, read_sets
from training.evaluate.tables import Record, Table
from training.evaluate.word_benchmarks import Embedding, Floats, WordScore, read_benchmarks
from training.progress import progress_bar

FOLDER = "words"  # in the folder of benchmarks


@dataclass(frozen=True)
class WordReport:
    """Scores by layer and benchmark."""

    backbone: str
    left_out: list[str] = field(default_factory=list)
    scores: dict[int, dict[str, WordScore]] = field(default_factory=dict)

    def tables(self) -> list[Table]:
        """The scores, and the share of each benchmark whose words are all known."""
        known = next(iter(self.scores.values()))
        rows = [
            [f"layer {layer}", *(f"{score.value:.2f}" for score in scores.values())]
            for layer, scores in self.scores.items()
        ]
        shares = [f"{score.covered / score.total:.0%}" for score in known.values()]
        return [
            Table(f"Words of {self.backbone}, x100", [*known], [*rows, ["words found", *shares]])
        ]

    def records(self) -> list[Record]:
        """Every score."""
        return [
            {"backbone": self.backbone, "layer": layer, "benchmark": name, **vars(score)}
            for layer, scores in self.scores.items()
            for name, score in scores.items()
        ]


def measure_words(source: str, layers: Sequence[int], data: Path, cache: VectorCache) -> WordReport:
    """Evaluate layers of a backbone, default the last, on the word benchmarks in `data`."""
    with open_backbone(source) as checkpoint:
        backbone = load(checkpoint, min(MAX_TOKENS, checkpoint.positions or MAX_TOKENS))
        report = WordReport(checkpoint.name)
        benchmarks = read_benchmarks(data / FOLDER, report.left_out)
        shards = [] if checkpoint.is_static else context_sentences(data, report.left_out)
        selected = []
        for layer in layers or [backbone.layer]:
            try:
                selected.append(backbone.at(layer))
            except BackboneError as error:
                report.left_out.append(str(error))
        if not selected:
            raise BackboneError(" ".join(report.left_out))
        cache.prefetch(selected, shards, sum(map(len, shards)))
        for each in progress_bar("Words", "layers", selected):
            embedding = embed_words(each, cache, shards)
            report.scores[each.layer] = {b.name: b.score(embedding) for b in benchmarks}
    return report


def context_sentences(data: Path, left_out: list[str]) -> list[Sequence[str]]:
    """The sentences of the STS sets, from which word vectors are taken, in cached lists."""
    sets, notes = read_sets([data], TEST_SETS)
    left_out.extend(notes)
    return [shard for pairs in sets for shard in in_shards(pairs.sentences)]


def embed_words(
    backbone: Backbone, cache: VectorCache, shards: Sequence[Sequence[str]]
) -> Embedding:
    """Word vectors of a backbone: its own if it is static, else from its vectors in `shards`."""
    return (
        _static(backbone) if backbone.checkpoint.is_static else _contextual(backbone, cache, shards)
    )


def _static(backbone: Backbone) -> Embedding:
    checkpoint = backbone.checkpoint
    vocabulary = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer)).get_vocab()
    words = sorted(vocabulary.keys() - {UNKNOWN}, key=vocabulary.__getitem__)
    table = checkpoint.tensors()[TABLE]  # [V + 1, H]
    return Embedding.of(words, table[[vocabulary[word] for word in words]])


def _contextual(
    backbone: Backbone, cache: VectorCache, shards: Sequence[Sequence[str]]
) -> Embedding:
    """The first principal component of every word's vectors in context."""
    tokenizer = tokenizers.Tokenizer.from_file(str(backbone.checkpoint.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(backbone.max_tokens)
    occurrences = [_Occurrences.find(tokenizer, shard) for shard in shards]
    index: dict[str, int] = {}
    numbers = np.array(
        [index.setdefault(word, len(index)) for part in occurrences for word in part.words], np.intp
    )
    if not index:
        raise LatteMixError(
            f"The tokenizer of {backbone.checkpoint.name} finds no words in the "
            f"{sum(map(len, shards)):,} sentences."
        )
    # All in memory at once, so in half precision, as they were cached.
    vectors = np.empty((len(numbers), backbone.hidden_size), np.float16)
    end = 0
    for shard, part in zip(shards, occurrences, strict=True):
        start, end = end, end + len(part.words)
        vectors[start:end] = part.vectors(backbone, cache, shard)
    ends = np.cumsum(np.bincount(numbers))
    positions = np.split(np.argsort(numbers, kind="stable"), ends[:-1])  # of each word
    return Embedding.of([*index], np.stack([first_component(vectors[rows]) for rows in positions]))


@dataclass(frozen=True)
class _Occurrences:
    """The words of some sentences in order, and the word of each token."""

    words: list[str]
    ids: list[int]  # of all tokens
    word_of: list[int]  # index in `words` of each token's word; -1 if it has none

    @classmethod
    def find(cls, tokenizer: tokenizers.Tokenizer, sentences: Sequence[str]) -> "_Occurrences":
        """Tokenize sentences as the backbone does, and map tokens to words."""
        occurrences = cls([], [], [])
        encodings = tokenizer.encode_batch(list(sentences))
        for sentence, tokens in zip(sentences, encodings, strict=True):
            occurrences.ids.extend(tokens.ids)
            indices: dict[int | None, int] = {}
            for word in sorted({number for number in tokens.word_ids if number is not None}):
                start, end = tokens.word_to_chars(word) or (0, 0)
                text = sentence[start:end].strip().lower()
                # Skip units of several words, from tokenizers that do not split at spaces.
                if len(text.split()) == 1:
                    indices[word] = len(occurrences.words)
                    occurrences.words.append(text)
            if tokens.overflowing and indices:  # the last word may be truncated
                del indices[[*indices][-1]], occurrences.words[-1]
            occurrences.word_of.extend(indices.get(number, -1) for number in tokens.word_ids)
        return occurrences

    def vectors(self, backbone: Backbone, cache: VectorCache, sentences: Sequence[str]) -> Floats:
        """One vector per word, the mean of its tokens': [W, H]."""
        encoded = cache.encode(backbone, sentences)
        assert np.array_equal(encoded.ids, self.ids)  # the backbone tokenizes the same way
        word_of = np.array(self.word_of, np.intp)
        in_word = word_of >= 0
        lengths = np.bincount(word_of[in_word])  # [W]
        starts = np.cumsum(lengths) - lengths
        sums = np.add.reduceat(encoded.vectors[in_word].astype(np.float32), starts)  # [W, H]
        return (sums / lengths[:, None]).astype(np.float32)


def first_component(occurrences: NDArray[np.floating]) -> Floats:
    """The first right singular vector of [n, H], uncentred and not normalised: [H]."""
    x = occurrences.astype(np.float32)
    n, width = x.shape
    if n == 1:
        return x[0]
    # The first eigenvector of the smaller Gram matrix is cheaper than an SVD.
    if n <= width:
        direction = eigh(x @ x.T, subset_by_index=[n - 1, n - 1])[1][:, 0] @ x
    else:
        direction = eigh(x.T @ x, subset_by_index=[width - 1, width - 1])[1][:, 0]
    # The sign is arbitrary: take the one that points towards the mean, so cosines are comparable.
    signed: Floats = direction if direction @ x.mean(axis=0) >= 0 else -direction
    return signed
