"""What a grid computes: heads trained once, and everything scored once, kept on disk."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lattemix.build.head import SPEC, Head
from training.backbones import Backbone
from training.cache import VectorCache
from training.corpus import Corpus
from training.encoding import EncodedCorpus
from training.evaluate.measure import encode, in_shards, places
from training.evaluate.report import MIXTURE, POOLING, Way
from training.evaluate.scores import head_scores, pooling_scores
from training.evaluate.sets import Pairs
from training.evaluate.statistics import CORRELATIONS, OVERS, Scores, correlate
from training.evaluate.word_scores import evaluate_words
from training.evaluate.word_sets import WordBenchmark
from training.evaluate.words import words_of
from training.job import identity, make_head
from training.recipe import Recipe

# Correlations x100 by `aggregation/metric/statistic/over`.
Results = dict[str, float]


def key(way: Way, statistic: str, over: str) -> str:
    """The name of one figure in `Results`."""
    return "/".join((*way, statistic, over))


@dataclass(frozen=True)
class Cell:
    """One backbone with one head on it, or with none: all that rows and metrics share."""

    backbone: Backbone
    recipe: Recipe | None = None  # none for poolings


@dataclass(frozen=True)
class Workshop:
    """Where cells are computed, and kept."""

    cells: Path
    corpus: Corpus | None  # needed where heads are trained
    cache: VectorCache
    _digests: dict[str, str] = field(default_factory=dict)

    def directory(self, cell: Cell) -> Path:
        """Of a cell, named for everything its results depend on but the sets."""
        backbone, wanted = cell.backbone, dict[str, object]()
        if cell.recipe:
            assert self.corpus is not None
            wanted = identity(backbone, self.corpus, cell.recipe)
        wanted |= {
            "backbone": backbone.checkpoint.sha256,
            "tokenizer": backbone.checkpoint.tokenizer_sha256,
            "layer": backbone.layer,
            "max_tokens": backbone.max_tokens,
        }
        return self.cells / _digest(wanted)

    def missing(self, cell: Cell, sets: Iterable[Pairs]) -> list[Pairs]:
        """The sets on which a cell has not been scored."""
        kept = self._kept(cell)
        return [p for p in sets if kept.get(p.name, {}).get("sha256") != self._digest(p)]

    def results(self, cell: Cell, name: str) -> Results:
        """What was found on a set."""
        found: Results = self._kept(cell)[name]["results"]
        return found

    def encode(self, cells: Sequence[Cell], sets: Sequence[Pairs]) -> None:
        """Read the layers of each backbone in one pass, if the cache can hold them all."""
        corpus = self.corpus if any(cell.recipe for cell in cells) else None
        sentences = [shard for pairs in sets for shard in in_shards(pairs.sentences)]
        for layers in _layers(cells):
            shards: Iterable[Sequence[str]] = sentences
            if corpus:
                shards = chain(sentences, map(corpus.shard, range(corpus.shards)))
            count = sum(map(len, sentences)) + (corpus.sentences if corpus else 0)
            self.cache.prefetch(layers, shards, count)

    def compute(self, cell: Cell, sets: Iterable[Pairs]) -> None:
        """Score a cell on the sets it has not been scored on, training its head if need be."""
        missing = self.missing(cell, sets)
        if not missing:
            return
        head = self._head(cell) if cell.recipe else None
        kept = self._kept(cell)
        for pairs in missing:
            scores = self._scores(cell, head, pairs)
            kept[pairs.name] = {"sha256": self._digest(pairs), "results": _results(scores, pairs)}
            _write(self._file(cell), kept)

    def words(
        self, backbone: Backbone, shards: Sequence[Sequence[str]], benchmarks: list[WordBenchmark]
    ) -> dict[str, float]:
        """A backbone's words by each benchmark, measured once."""
        wanted = _digest([list(map(list, shards)), [repr(each) for each in benchmarks]])
        path = self.directory(Cell(backbone)) / "words.json"
        kept = _read(path)
        if kept.get("sha256") != wanted:
            scores = evaluate_words(words_of(backbone, self.cache, shards), benchmarks)
            results = {name: score.value for name, score in scores.items()}
            kept = {"sha256": wanted, "results": results}
            _write(path, kept)
        found: dict[str, float] = kept["results"]
        return found

    def _head(self, cell: Cell) -> Head:
        """Train it, or find it; one that was interrupted goes on."""
        assert cell.recipe is not None
        assert self.corpus is not None
        directory = self.directory(cell)
        if not (directory / SPEC).exists():
            encoded = EncodedCorpus(cell.backbone, self.corpus, self.cache)
            state = directory / "run"
            make_head(encoded, cell.recipe, "", state, progress=False).save(directory)
            shutil.rmtree(state, ignore_errors=True)
        return Head.load(directory)

    def _scores(self, cell: Cell, head: Head | None, pairs: Pairs) -> dict[Way, Scores]:
        tokens = encode(cell.backbone, self.cache, pairs.sentences)
        left, right = places(pairs)
        if head:
            found = head_scores(head, tokens, left, right)
            return {(MIXTURE, metric): scores for metric, scores in found.items()}
        static = cell.backbone.checkpoint.is_static
        pooled = pooling_scores(tokens, left, right, static)
        return {(POOLING, pooling): scores for pooling, scores in pooled.items()}

    def _file(self, cell: Cell) -> Path:
        return self.directory(cell) / "scores.json"

    def _kept(self, cell: Cell) -> dict[str, Any]:
        return _read(self._file(cell))

    def _digest(self, pairs: Pairs) -> str:
        if pairs.name not in self._digests:
            content = [pairs.a, pairs.b, pairs.gold, pairs.subsets]
            self._digests[pairs.name] = _digest(content)
        return self._digests[pairs.name]


def _layers(cells: Iterable[Cell]) -> list[list[Backbone]]:
    """Every backbone among the cells, at each of its layers."""
    found: dict[str, dict[int, Backbone]] = {}
    for backbone in (cell.backbone for cell in cells):
        found.setdefault(backbone.checkpoint.sha256, {})[backbone.layer] = backbone
    return [list(layers.values()) for layers in found.values()]


def _results(scores: Mapping[Way, Scores], pairs: Pairs) -> Results:
    gold = np.array(pairs.gold)
    return {
        key(way, statistic, over): correlate(correlation, found, gold, pairs.subsets, over)
        for way, found in scores.items()
        for statistic, correlation in CORRELATIONS.items()
        for over in OVERS
    }


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # not there, or damaged: it is computed again
    return kept


def _write(path: Path, content: object) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1), encoding="utf-8")
    new.replace(path)
