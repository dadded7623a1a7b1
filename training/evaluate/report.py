"""One table: mixtures beside pooling, the centred mean and encoders nobody trained."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.engine import Encoder
from model_store import Artifact, LatteMixError
from training import readers
from training.backbones import Backbone, TokenVectors, load, open_backbone
from training.cache import VectorCache
from training.corpus import SHARD_SENTENCES, prepare
from training.evaluate.scores import (
    Scores,
    baseline_scores,
    interval,
    mixture_scores,
    pooling_scores,
    random_control,
    served_scores,
    spearman,
)
from training.evaluate.sets import DEVELOPMENT, Pairs, read, read_stsb
from training.head import STATISTICS_SENTENCES, Head

POOLING, MIXTURE, SERVED = "pooling", "mixture", "served"
CONTROL, NOTHING = "random encoder", "nothing learned"  # the latter where weights are learned
CONTROL_SEEDS = 3

Way = tuple[str, str]  # a way of comparing: (aggregation, pooling or metric)


@dataclass(frozen=True)
class Report:
    """Similarities of the pairs of each set by each way of comparing, one row per seed."""

    recommended: str
    gold: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    scores: dict[Way, dict[str, list[Scores]]] = field(default_factory=dict)

    def add(self, way: Way, benchmark: str, scores: Scores) -> None:
        """Take in the scores of one set, of one seed."""
        self.scores.setdefault(way, {}).setdefault(benchmark, []).append(scores)

    def spearman(self, way: Way, benchmark: str) -> list[float]:
        """Spearman x100 of every seed."""
        return [spearman(scores, self.gold[benchmark]) for scores in self.scores[way][benchmark]]

    def averages(self, way: Way) -> list[float]:
        """Over the sets that nothing is chosen on, of every seed."""
        by_set = [self.spearman(way, name) for name in self.gold if name not in DEVELOPMENT]
        return [float(np.mean(seed)) for seed in zip(*by_set, strict=True)]

    @property
    def markdown(self) -> str:
        """The table, and the differences that matter with their intervals."""
        several = len(self.gold.keys() - DEVELOPMENT) > 1
        lines = _header([*self.gold, *(["average"] if several else [])])
        for way in self.scores:
            cells = [_cell(self.spearman(way, name)) for name in self.gold]
            cells += [_cell(self.averages(way))] if several else []
            lines.append(f"| {way[0]}, {way[1]} | " + " | ".join(cells) + " |")
        return "\n".join([*lines, "", *self._differences()])

    def _differences(self) -> list[str]:
        """The recommended metric minus each control, in the first seeds, on every set."""
        ours = (MIXTURE, self.recommended)
        if ours not in self.scores:
            return []
        controls = [(POOLING, "mean"), (POOLING, "centred mean")]
        controls += [(POOLING, "weighted mean"), (POOLING, "weighted centred mean")]
        controls += [(CONTROL, self.recommended), (NOTHING, self.recommended)]
        lines = [f"Mixture by {self.recommended}, minus (95 % paired bootstrap interval):", ""]
        lines += _header([*self.gold])
        for control in [way for way in controls if way in self.scores]:
            cells = []
            for name, gold in self.gold.items():
                mine, other = self.scores[ours][name][0], self.scores[control][name][0]
                low, high = interval(mine, other, gold)
                cells.append(
                    f"{spearman(mine, gold) - spearman(other, gold):+.2f} [{low:+.2f}, {high:+.2f}]"
                )
            lines.append(f"| {control[0]}, {control[1]} | " + " | ".join(cells) + " |")
        return lines


def _header(columns: Sequence[str]) -> list[str]:
    return ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]


def _cell(values: Sequence[float]) -> str:
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def compare(
    heads: Sequence[Head],
    backbone: Backbone,
    sets: Sequence[Pairs],
    cache: VectorCache,
    corpus: Sequence[str] = (),
    served: Encoder | None = None,
) -> Report:
    """Measure heads of one recipe, seed by seed, and what they should be compared with.

    Args:
        heads: differing in their seed only.
        backbone: the one they were trained on.
        sets: the benchmarks.
        cache: of encoded sentences.
        corpus: sentences they were trained on, to centre the controls as they were centred. The
            control is measured by `centred` only with these.
        served: the model made from the first head, to be measured as it answers.
    """
    first = heads[0]
    sample = _encode(backbone, cache, corpus) if corpus else None
    ways: dict[str, Sequence[Head]] = {
        MIXTURE: heads,
        CONTROL: _controls(first, sample, learned_weights=True),
    }
    if first.spec.token_weighting == "learned":
        ways[NOTHING] = _controls(first, sample, learned_weights=False)
    report = Report(first.spec.recommended_metric)
    for pairs in sets:
        distinct = {text: i for i, text in enumerate(sorted({*pairs.a, *pairs.b}))}
        encoded = _encode(backbone, cache, [*distinct])
        a, b = (encoded.take([distinct[text] for text in texts]) for texts in (pairs.a, pairs.b))
        report.gold[pairs.name] = np.array(pairs.gold)
        for pooling, scores in pooling_scores(first, a, b).items():
            report.add((POOLING, pooling), pairs.name, scores)
        for aggregation, measured in ways.items():
            for head in measured:
                measure = mixture_scores if head.spec.model == "categorical" else baseline_scores
                for metric, scores in measure(head, a, b).items():
                    report.add((aggregation, metric), pairs.name, scores)
        if served:
            left, right = served.encode(pairs.a).mixtures, served.encode(pairs.b).mixtures
            for metric, scores in served_scores(left, right, served.centre).items():
                report.add((SERVED, metric), pairs.name, scores)
    return report


def _controls(head: Head, corpus: TokenVectors | None, learned_weights: bool) -> list[Head]:
    controls = [random_control(head, seed, learned_weights) for seed in range(CONTROL_SEEDS)]
    if corpus is None or head.spec.model != "categorical":
        return controls
    return [
        replace(control, tensors={**control.tensors, "centre": control.centre_of(corpus)})
        for control in controls
    ]


def _encode(backbone: Backbone, cache: VectorCache, sentences: Sequence[str]) -> TokenVectors:
    starts = range(0, len(sentences), SHARD_SENTENCES)
    parts = [cache.encode(backbone, sentences[i : i + SHARD_SENTENCES]) for i in starts]
    return TokenVectors.join(parts).without(backbone.checkpoint.unknown_id)


def evaluate_heads(
    directories: Sequence[Path],
    data: Path,
    names: Sequence[str],
    cache: VectorCache,
    source: str | None = None,
    corpus: tuple[Sequence[Path], Sequence[str]] = ((), ()),
    artifact: Artifact | None = None,
) -> Report:
    """Evaluate the heads in `directories`; see `compare`.

    Args:
        directories: of heads that differ in their seed only.
        data: a folder of benchmarks, or one STSb file.
        names: of the benchmarks in the folder.
        cache: of encoded sentences.
        source: of the backbone, if not the heads' own name for it.
        corpus: files the heads were trained on, and the fields of theirs to read.
        artifact: made from the first head.
    """
    heads = [Head.load(directory) for directory in directories]
    spec = heads[0].spec
    if artifact and artifact.manifest.head.sha256 != spec.sha256:
        raise LatteMixError(
            f"The model {artifact.manifest.name!r} was not made with this head: name its own with "
            "--model, or assemble it again with `lattemix-train export`."
        )
    sets = [read_stsb(data, data.stem)] if data.is_file() else [read(data, n) for n in names]
    with open_backbone(source or spec.backbone.name) as checkpoint:
        for head in heads:
            checkpoint.check_digest(head.spec.backbone)
        backbone = load(checkpoint, spec.max_tokens, spec.backbone.layer)
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            sample: Sequence[str] = ()
            if corpus[0]:
                most = spec.recipe["max_sentences"]
                prepared = prepare(readers.read(*corpus), Path(temporary), most)
                sample = prepared.head(STATISTICS_SENTENCES)
            served = Encoder(artifact) if artifact else None
            return compare(heads, backbone, sets, cache, sample, served)


def record_scores(report: Report, directory: Path) -> None:
    """Keep the scores, as served if they were measured so, in the first seed's head.

    From there they go into every artifact made of it.
    """
    head = Head.load(directory)
    wanted = SERVED if any(way == SERVED for way, _ in report.scores) else MIXTURE
    scores = {
        f"{name}/{metric}": round(report.spearman((way, metric), name)[0], 2)
        for way, metric in report.scores
        if way == wanted
        for name in report.gold
    }
    evaluation = {**head.spec.evaluation, **scores}
    head.spec.model_copy(update={"evaluation": evaluation}).write(directory)
