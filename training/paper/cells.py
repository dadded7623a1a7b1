"""The cells of a reproduction: heads trained once, scores computed once, both kept on disk."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lattemix.build.head import SPEC, Head
from training.backbones import Backbone
from training.cache import VectorCache
from training.corpus import Corpus
from training.encoding import EncodedCorpus
from training.evaluate.report import MIXTURE, POOLING, RANDOM, Method
from training.evaluate.scores import (
    encode,
    head_scores,
    in_shards,
    pooling_scores,
    random_control,
    sentence_indices,
)
from training.evaluate.sets import Pairs
from training.evaluate.statistics import spearman
from training.evaluate.word_benchmarks import WordBenchmark
from training.evaluate.words import embed_words
from training.heads import identity, make_head
from training.output import STATE
from training.recipe import Recipe


@dataclass(frozen=True)
class Cell:
    """A backbone with a head, or alone; rows that differ in the metric share a cell."""

    backbone: Backbone
    recipe: Recipe | None = None  # None: poolings


class Cells:
    """Computes the scores of cells on some sets, and keeps them."""

    def __init__(
        self,
        root: Path,
        cache: VectorCache,
        sets: Sequence[Pairs] = (),
        corpus: Corpus | None = None,
    ) -> None:
        self._root, self._cache, self._sets = root, cache, sets
        self._corpus = corpus  # needed to train heads
        self._digests = {p.name: _digest([p.a, p.b, p.gold, p.subsets]) for p in sets}

    def directory(self, cell: Cell) -> Path:
        """The directory of a cell, named by a digest of its backbone, recipe and corpus."""
        backbone, content = cell.backbone, dict[str, object]()
        if cell.recipe:
            assert self._corpus is not None
            content = identity(backbone, self._corpus, cell.recipe)
        content |= {
            "backbone": backbone.checkpoint.sha256,
            "tokenizer": backbone.checkpoint.tokenizer_sha256,
            "layer": backbone.layer,
            "max_tokens": backbone.max_tokens,
        }
        return self._root / _digest(content)

    def missing(self, cell: Cell) -> list[Pairs]:
        """The sets on which a cell has no scores."""
        digests = {name: entry["sha256"] for name, entry in self._read(cell).items()}
        return [p for p in self._sets if digests.get(p.name) != self._digests[p.name]]

    def spearman(self, cell: Cell, benchmark: str, method: Method) -> float | None:
        """Spearman x100 of a scored cell; None if it has no such method."""
        results: dict[str, float] = self._read(cell)[benchmark]["results"]
        return results.get(_key(method))

    def encode(self, cells: Sequence[Cell]) -> None:
        """Encode all layers of each backbone in one pass, if the cache can hold them."""
        layers: dict[str, dict[int, Backbone]] = {}
        for backbone in (cell.backbone for cell in cells):
            layers.setdefault(backbone.checkpoint.sha256, {})[backbone.layer] = backbone
        corpus = self._corpus if any(cell.recipe for cell in cells) else None
        sentences = [shard for pairs in self._sets for shard in in_shards(pairs.sentences)]
        count = sum(map(len, sentences)) + (corpus.sentences if corpus else 0)
        for backbones in layers.values():
            training = map(corpus.shard, range(corpus.shards)) if corpus else ()
            self._cache.prefetch([*backbones.values()], chain(sentences, training), count)

    def compute(self, cell: Cell) -> None:
        """Score a cell on the sets it has no scores on; train its head if necessary."""
        missing = self.missing(cell)
        if not missing:
            return
        head = self._head(cell) if cell.recipe else None
        results = self._read(cell)
        for pairs in missing:
            scores = self._score(cell.backbone, head, pairs)
            results[pairs.name] = {"sha256": self._digests[pairs.name], "results": scores}
            _write(self.directory(cell) / "scores.json", results)

    def words(
        self, backbone: Backbone, shards: Sequence[Sequence[str]], benchmarks: list[WordBenchmark]
    ) -> dict[str, float]:
        """Scores of a backbone on word benchmarks."""
        digest = _digest([list(map(list, shards)), [repr(each) for each in benchmarks]])
        path = self.directory(Cell(backbone)) / "words.json"
        content = _read(path)
        if content.get("sha256") != digest:
            embedding = embed_words(backbone, self._cache, shards)
            results = {each.name: each.score(embedding).value for each in benchmarks}
            content = {"sha256": digest, "results": results}
            _write(path, content)
        scores: dict[str, float] = content["results"]
        return scores

    def _head(self, cell: Cell) -> Head:
        """Load the head of a cell, or train it, resuming an interrupted run."""
        assert cell.recipe is not None
        assert self._corpus is not None
        directory = self.directory(cell)
        if not (directory / SPEC).exists():
            encoded = EncodedCorpus(cell.backbone, self._corpus, self._cache)
            state = directory / STATE
            make_head(encoded, cell.recipe, "", state, progress=False).save(directory)
            shutil.rmtree(state, ignore_errors=True)
        return Head.load(directory)

    def _score(self, backbone: Backbone, head: Head | None, pairs: Pairs) -> dict[str, float]:
        tokens = encode(backbone, self._cache, pairs.sentences)
        left, right = sentence_indices(pairs)
        static, gold = backbone.checkpoint.is_static, np.array(pairs.gold)
        scores = {POOLING: pooling_scores(tokens, left, right, static, head)}
        if head:
            scores[MIXTURE] = head_scores(head, tokens, left, right)
            untrained = random_control(head, head.spec.recipe["seed"])
            scores[RANDOM] = head_scores(untrained, tokens, left, right)
        return {
            _key((aggregation, name)): spearman(values, gold)
            for aggregation, by_name in scores.items()
            for name, values in by_name.items()
        }

    def _read(self, cell: Cell) -> dict[str, Any]:
        return _read(self.directory(cell) / "scores.json")


def _key(method: Method) -> str:
    """The key of a score in `scores.json`: Spearman over all pairs."""
    return "/".join((*method, "spearman", "all"))


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # absent or damaged: computed again
    return content


def _write(path: Path, content: object) -> None:
    """Write JSON atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1), encoding="utf-8")
    new.replace(path)
