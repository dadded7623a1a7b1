"""The words of one backbone, layer by layer: everything `lattemix-train words` does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lattemix.build.backbones import BackboneError, open_backbone
from training.backbones import load
from training.cache import VectorCache
from training.evaluate.evaluation import MAX_TOKENS
from training.evaluate.measure import in_shards
from training.evaluate.sets import ALL, read_sets
from training.evaluate.tables import Record, Table
from training.evaluate.word_scores import WordScore, evaluate_words
from training.evaluate.word_sets import read_benchmarks
from training.evaluate.words import words_of
from training.progress import progress_bar

FOLDER = "words"  # in the folder of the other benchmarks


@dataclass(frozen=True)
class WordReport:
    """Scores by layer and benchmark."""

    backbone: str
    left_out: list[str] = field(default_factory=list)
    scores: dict[int, dict[str, WordScore]] = field(default_factory=dict)

    @property
    def benchmarks(self) -> list[str]:
        """Those measured."""
        return list(dict.fromkeys(name for scores in self.scores.values() for name in scores))

    def tables(self) -> list[Table]:
        """The scores, and the share of each benchmark whose words were all found."""
        rows = [
            [f"layer {layer}", *(f"{scores[name].value:.2f}" for name in self.benchmarks)]
            for layer, scores in self.scores.items()
        ]
        known = next(iter(self.scores.values()))
        shares = [f"{known[name].covered / known[name].total:.0%}" for name in self.benchmarks]
        rows.append(["words found", *shares])
        return [Table(f"Words of {self.backbone}, x100", self.benchmarks, rows)]

    def records(self) -> list[Record]:
        """Every score."""
        return [
            {
                "backbone": self.backbone,
                "layer": layer,
                "benchmark": name,
                "value": score.value,
                "covered": score.covered,
                "total": score.total,
            }
            for layer, scores in self.scores.items()
            for name, score in scores.items()
        ]


def sts_sentences(data: Path, left_out: list[str]) -> list[Sequence[str]]:
    """The sentences in which words are looked at: of the STS sets, as these are encoded."""
    sets, missing = read_sets([data], ALL)
    left_out.extend(missing)
    return [shard for pairs in sets for shard in in_shards(pairs.sentences)]


def measure_words(source: str, layers: Sequence[int], data: Path, cache: VectorCache) -> WordReport:
    """Measure layers of a backbone, the last if none is named, on the benchmarks in `data`."""
    with open_backbone(source) as checkpoint:
        backbone = load(checkpoint, min(MAX_TOKENS, checkpoint.positions or MAX_TOKENS))
        report = WordReport(checkpoint.name)
        benchmarks = read_benchmarks(data / FOLDER, report.left_out.append)
        shards = [] if checkpoint.is_static else sts_sentences(data, report.left_out)
        wanted = []
        for layer in layers or [backbone.layer]:
            try:
                wanted.append(backbone.at(layer))
            except BackboneError as error:
                report.left_out.append(str(error))
        if not wanted:
            raise BackboneError(" ".join(report.left_out))
        cache.prefetch(wanted, shards, sum(map(len, shards)))
        for each in progress_bar("Words", "layers", wanted):
            report.scores[each.layer] = evaluate_words(words_of(each, cache, shards), benchmarks)
    return report
