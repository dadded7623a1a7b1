"""One table: what is served, beside pooling, the centred mean and an untrained encoder."""

from dataclasses import dataclass, replace
from pathlib import Path

from app.engine import Encoder
from model_store import LatteMixError, Store
from training.backbones.sources import open_backbone
from training.backbones.transformer import Transformer
from training.corpus import sample
from training.evaluate import sts
from training.head import CENTRE_SENTENCES, Floats, Head


@dataclass(frozen=True)
class Report:
    """Spearman x100 of each way of comparing two sentences, on one STSb file."""

    benchmark: str  # "sts-dev"
    pairs: int
    model: str
    pooling: dict[str, float]
    served: dict[str, float]
    control: dict[str, float]

    @property
    def text(self) -> str:
        """The table."""
        lines = [f"Spearman x100 on {self.pairs:,} pairs of {self.benchmark}.csv"]
        lines += [_row(pooling, "cosine", score) for pooling, score in self.pooling.items()]
        served = f"mixture, served ({self.model})"
        lines += [_row(served, metric, score) for metric, score in self.served.items()]
        control = "mixture, random encoder"
        lines += [_row(control, metric, score) for metric, score in self.control.items()]
        return "\n".join(lines)

    def record(self, head_directory: Path) -> None:
        """Keep the served scores in the head, which carries them into the artifact."""
        spec = Head.load(head_directory).spec
        scores = {f"{self.benchmark}/{metric}": score for metric, score in self.served.items()}
        evaluation = {**spec.evaluation, **scores}
        spec.model_copy(update={"evaluation": evaluation}).write(head_directory)


def compare(
    stsb: Path,
    model: str,
    head: Head,
    store: Store,
    backbone: str | None = None,
    corpus: Path | None = None,
) -> Report:
    """Measure the model `model`, made with `head`, and what it should be compared with.

    The control can be measured by `centred` only if it is centred as the head was, on a corpus
    that is not the one being evaluated: give the head's own.
    """
    artifact = store.open(model)
    if artifact.manifest.head.sha256 != head.spec.sha256:
        raise LatteMixError(
            f"The model {model!r} was not made with this head: name its own with --model, or "
            "assemble it again with `lattemix build`."
        )
    pairs = sts.read_stsb(stsb)
    control = sts.random_control(head)
    with open_backbone(backbone or head.spec.backbone.name) as checkpoint:
        checkpoint.check_digest(head.spec.backbone)
        transformer = Transformer(checkpoint, head.spec.max_tokens, head.spec.backbone.layer)
        a, b = _vectors(transformer, pairs.a), _vectors(transformer, pairs.b)
        if corpus:
            sentences = sample(corpus, CENTRE_SENTENCES, seed=0)
            centre = control.centre_of(_vectors(transformer, sentences))
            control = replace(control, tensors={**control.tensors, "centre": centre})
    encoder = Encoder(artifact)
    left, right = encoder.encode(pairs.a).mixtures, encoder.encode(pairs.b).mixtures
    return Report(
        benchmark=stsb.stem,
        pairs=len(pairs.gold),
        model=model,
        pooling=sts.pooling_scores(head, a, b, pairs.gold),
        served=sts.served_scores(left, right, encoder.centre, pairs.gold),
        control=sts.mixture_scores(control, a, b, pairs.gold),
    )


def _vectors(transformer: Transformer, sentences: list[str]) -> list[Floats]:
    return [states.numpy() for states in transformer.token_vectors(sentences)]


def _row(aggregation: str, metric: str, score: float) -> str:
    return f"{aggregation:<28} {metric:<14} {score:6.2f}"
