"""One evaluation: everything `lattemix-train evaluate` does."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones import BackboneError, open_backbone
from lattemix.build.head import STATISTICS_SENTENCES, Head
from lattemix.encoder import Encoder
from model_store import Artifact, LatteMixError, Precision
from model_store.store import HEADS
from training import readers as corpora
from training.backbones import Backbone, load
from training.cache import VectorCache
from training.corpus import prepare
from training.evaluate.hub import readers
from training.evaluate.measure import Encoded, Measure, Served, measure
from training.evaluate.remote import Remote
from training.evaluate.report import MIXTURE, SERVED, Report
from training.evaluate.sets import collect

MAX_TOKENS = 256  # where no head says how much of a sentence is read


@dataclass(frozen=True)
class Evaluation:
    """What to measure, and on what.

    Heads bring their backbone; a model is measured as it is served, beside its head if that is
    known and its backbone's poolings; a backbone alone is measured by its poolings; a server by its
    answers. Without any of these, it is the head we ship.
    """

    data: Sequence[Path]  # folders of benchmarks and files of pairs; `hub` for the hub's
    sets: Sequence[str]
    cache: VectorCache
    heads: Sequence[Path] = ()  # that differ in their seed only
    model: Artifact | None = None
    backbone: str | None = None
    layer: int | None = None
    url: str | None = None
    controls: bool = False
    corpus: Sequence[Path] = ()  # of the heads, to centre the controls
    columns: Sequence[str] = ()

    def run(self) -> Report:
        """Read, measure, report."""
        heads = [Head.load(directory) for directory in self.directories]
        self._check(heads)
        sets, left_out = collect([*readers(self.data, self.sets)])
        measures: list[Measure] = []
        recommended: str | None = heads[0].spec.recommended_metric if heads else None
        with ExitStack() as opened:
            if backbone := self._backbone(opened, heads, left_out):
                sample = self._sample(heads)
                measures.append(Encoded(backbone, self.cache, heads, self.controls, sample))
            if self.model:
                recommended = self.model.manifest.recommended_metric
                measures.append(Served(Encoder(self.model)))
            if self.url:
                remote = Remote(self.url)
                recommended = recommended or remote.recommended
                measures.append(remote)
            report = measure(sets, measures, recommended, left_out)
            if self.url:
                report.left_out.extend(remote.left_out)
        return report

    @property
    def directories(self) -> Sequence[Path]:
        """Of the heads: those named, that of the model if we ship it, or the default one."""
        if self.heads:
            return self.heads
        if self.model:
            wanted = self.model.manifest.head.sha256
            known = (path for path in HEADS.iterdir() if path.is_dir())
            return [path for path in known if Head.load(path).spec.sha256 == wanted]
        return [] if self.backbone or self.url else [HEADS / "default"]

    def _check(self, heads: Sequence[Head]) -> None:
        if self.model and self.heads and self.model.manifest.head.sha256 != heads[0].spec.sha256:
            raise LatteMixError(
                f"The model {self.model.manifest.name!r} was not made with this head: name its own "
                "with --model, or assemble it again with `lattemix-train export`."
            )
        if self.controls and not heads:
            raise LatteMixError("--controls are of a head: name it with --head.")
        if self.layer is not None and (heads or self.model):
            raise LatteMixError("--layer is for a backbone alone: a head has its own.")
        for head in heads[1:]:
            other = [key for key, value in _kind(head).items() if value != _kind(heads[0])[key]]
            if other:
                raise LatteMixError(
                    f"Heads are measured together if they differ in their seed alone; these differ "
                    f"in {', '.join(other)}: evaluate each by itself."
                )

    def _backbone(
        self, opened: ExitStack, heads: list[Head], left_out: list[str]
    ) -> Backbone | None:
        """The backbone named, or that of the heads, or of the model."""
        record, tokens = None, 0
        if heads:
            record, tokens = heads[0].spec.backbone, heads[0].spec.max_tokens
        elif self.model:
            record, tokens = self.model.manifest.backbone, self.model.manifest.max_tokens
        source = self.backbone or (record.name if record else None)
        if source is None:
            return None
        try:
            checkpoint = opened.enter_context(open_backbone(source))
        except BackboneError as error:
            if self.backbone or self.heads or not self.model:
                raise
            heads.clear()
            left_out.append(f"poolings: {error}")  # the model itself can be measured without
            return None
        for wanted in [head.spec.backbone for head in heads] or ([record] if record else []):
            checkpoint.check_digest(wanted)
        tokens = tokens or min(MAX_TOKENS, checkpoint.positions or MAX_TOKENS)
        return load(checkpoint, tokens, record.layer if record else self.layer)

    def _sample(self, heads: Sequence[Head]) -> Sequence[str]:
        if not (self.controls and self.corpus):
            return ()
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            sentences = corpora.read(self.corpus, self.columns)
            most = heads[0].spec.recipe["max_sentences"]
            return prepare(sentences, Path(temporary), most).head(STATISTICS_SENTENCES)


def _kind(head: Head) -> dict[str, object]:
    """All that heads to be averaged have in common."""
    recipe = {key: value for key, value in head.spec.recipe.items() if key != "seed"}
    return {"backbone": head.spec.backbone.sha256, "layer": head.spec.backbone.layer, **recipe}


def record_scores(report: Report, directory: Path, precision: Precision = "fp32") -> None:
    """Keep the scores, as served in a precision if they were measured so, in a head.

    From there they go into every artifact made of it.
    """
    head = Head.load(directory)
    wanted = SERVED if any(way == SERVED for way, _ in report.scores) else MIXTURE
    suffix = "" if precision == "fp32" else f"@{precision}"
    scores = {
        f"{pairs.name}/{metric}{suffix}": round(report.values((way, metric), pairs.name)[0], 2)
        for way, metric in report.scores
        if way == wanted
        for pairs in report.sets
    }
    evaluation = {**head.spec.evaluation, **scores}
    head.spec.model_copy(update={"evaluation": evaluation}).write(directory)
