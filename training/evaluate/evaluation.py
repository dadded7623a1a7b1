"""`lattemix-train evaluate`: agreement of similarities with human scores."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones import BackboneError, open_backbone
from lattemix.build.distill import open_origin
from lattemix.build.head import STATISTICS_SENTENCES, Head
from lattemix.client import Client
from lattemix.encoder import Encoder
from lattemix.model import Model
from model_store import Artifact, LatteMixError, Precision
from model_store.store import HEADS
from training import readers
from training.backbones import Backbone, load
from training.cache import VectorCache
from training.corpus import prepare
from training.evaluate.overlap import without
from training.evaluate.report import MIXTURE, SERVED, Report
from training.evaluate.scorers import BackboneScorer, Scorer, ServedScorer, evaluate
from training.evaluate.sets import Pairs, read_sets
from training.exclusion import Exclusion

MAX_TOKENS = 256  # for backbones without a head


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and on which sets.

    Heads are scored on their backbone, beside its poolings. A model is scored as served, beside its
    backbone's poolings and, if it was assembled from a shipped head, that head. A backbone alone is
    scored by its poolings, a server by its responses. Default: the shipped head `default`.
    """

    data: Sequence[Path]  # folders of benchmarks, files of pairs, `hub`
    sets: Sequence[str]
    cache: VectorCache
    heads: Sequence[Path] = ()  # differing in their seed only
    model: Artifact | None = None
    backbone: str | None = None
    layer: int | None = None
    url: str | None = None
    controls: bool = False
    corpus: Sequence[Path] = ()  # training corpus of the heads, to centre the controls
    columns: Sequence[str] = ()
    exclusion: Exclusion | None = None  # pairs with one of these sentences are left out

    def run(self, sets: Sequence[Pairs] = ()) -> Report:
        """Score the pairs of the sets and report; `sets` replaces those in `data`."""
        heads = [Head.load(directory) for directory in self.head_directories]
        self._check(heads)
        sets, left_out = (sets, []) if sets else read_sets(self.data, self.sets)
        if self.exclusion is not None:
            sets = [without(pairs, self.exclusion, left_out) for pairs in sets]
        scorers: list[Scorer] = []
        recommended: list[str] = [head.spec.recommended_metric for head in heads[:1]]
        with ExitStack() as stack:
            if backbone := self._load_backbone(stack, heads, left_out):
                sample = self._sample(heads)
                scorers.append(BackboneScorer(backbone, self.cache, heads, self.controls, sample))
            served = [ServedScorer(Model(Encoder(self.model)))] if self.model else []
            if self.url:
                served.append(ServedScorer(stack.enter_context(Client(self.url))))
            recommended += [scorer.recommended for scorer in served]
            report = evaluate(sets, [*scorers, *served], next(iter(recommended), None), left_out)
        report.left_out.extend(note for scorer in served for note in scorer.left_out)
        return report

    @property
    def head_directories(self) -> Sequence[Path]:
        """Directories of the heads: as given, the model's if it is shipped, or the default's."""
        if self.heads:
            return self.heads
        if self.model:
            sha256 = self.model.manifest.head.sha256
            shipped = (path for path in HEADS.iterdir() if path.is_dir())
            return [path for path in shipped if Head.load(path).spec.sha256 == sha256]
        return [] if self.backbone or self.url else [HEADS / "default"]

    def _check(self, heads: Sequence[Head]) -> None:
        if self.model and self.heads and self.model.manifest.head.sha256 != heads[0].spec.sha256:
            raise LatteMixError(
                f"The model {self.model.manifest.name!r} was assembled from another head: pass "
                "that head with --head, or export this one with `lattemix-train export`."
            )
        if self.controls and not heads:
            raise LatteMixError("--controls needs a head: name it with --head.")
        if self.layer is not None and (heads or self.model):
            raise LatteMixError("--layer is for a backbone alone: a head has its own layer.")
        for head in heads[1:]:
            first, settings = _settings(heads[0]), _settings(head)
            if different := [key for key, value in settings.items() if value != first[key]]:
                raise LatteMixError(
                    "Heads evaluated together may differ in their seed only; these differ in "
                    f"{', '.join(different)}: evaluate each by itself."
                )

    def _load_backbone(
        self, stack: ExitStack, heads: list[Head], left_out: list[str]
    ) -> Backbone | None:
        """Load the given backbone, or that of the heads or the model.

        A model can be evaluated without its backbone; `heads` is emptied then.
        """
        origin, tokens = None, 0
        if heads:
            origin, tokens = heads[0].spec.backbone, heads[0].spec.max_tokens
        elif self.model:
            origin, tokens = self.model.manifest.backbone, self.model.manifest.max_tokens or 0
        source = self.backbone or (origin.name if origin else None)
        if source is None:
            return None
        try:
            opened = open_origin(origin, source) if origin else open_backbone(source)
            checkpoint = stack.enter_context(opened)
        except BackboneError as error:
            if self.backbone or self.heads or not self.model:
                raise
            heads.clear()
            left_out.append(f"poolings: {error}")
            return None
        tokens = tokens or min(MAX_TOKENS, checkpoint.positions or MAX_TOKENS)
        return load(checkpoint, tokens, origin.layer if origin else self.layer)

    def _sample(self, heads: Sequence[Head]) -> Sequence[str]:
        if not (self.controls and self.corpus):
            return ()
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            sentences = readers.read(self.corpus, self.columns)
            limit = heads[0].spec.recipe["max_sentences"]
            return prepare(sentences, Path(temporary), limit).first(STATISTICS_SENTENCES)


def _settings(head: Head) -> dict[str, object]:
    """The settings that must agree for scores to be averaged over heads."""
    recipe = {key: value for key, value in head.spec.recipe.items() if key != "seed"}
    backbone = head.spec.backbone.model_dump(include={"sha256", "layer", "template"})
    return {**backbone, **recipe}


def record_scores(report: Report, directory: Path, precision: Precision = "fp32") -> None:
    """Store the scores, as served if measured so, in a head; its artifacts inherit them."""
    head = Head.load(directory)
    served = any(aggregation == SERVED for aggregation, _ in report.scores)
    suffix = "" if precision == "fp32" else f"@{precision}"
    scores = {
        f"{pairs.name}/{method[1]}{suffix}": round(report.values(method, pairs.name)[0], 2)
        for method in report.scores
        if method[0] == (SERVED if served else MIXTURE)
        for pairs in report.sets
    }
    evaluation = {**head.spec.evaluation, **scores}
    head.spec.model_copy(update={"evaluation": evaluation}).write(directory)
