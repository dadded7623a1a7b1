"""One table: what is served, beside pooling, the centred mean and an untrained encoder."""

from collections.abc import Iterator
from pathlib import Path

from app.engine import Encoder
from model_store import Store
from training.backbones.sources import open_backbone
from training.backbones.transformer import Transformer
from training.corpus import sample
from training.evaluate import sts
from training.head import Floats, Head

_CENTRE_SENTENCES = 4096


def compare(
    stsb: Path,
    model: str,
    head_directory: Path,
    store: Store,
    backbone: str | None = None,
    corpus: Path | None = None,
) -> Iterator[str]:
    """Yield the lines of the comparison on one STSb file.

    The control can be measured by `centred` only if it is centred as the head was, on a corpus
    that is not the one being evaluated: give the head's own.
    """
    pairs = sts.read_stsb(stsb)
    head = Head.load(head_directory)
    with open_backbone(backbone or head.spec.backbone.name) as checkpoint:
        transformer = Transformer(checkpoint, head.spec.max_tokens, head.spec.backbone.layer)
        a, b = _vectors(transformer, pairs.a), _vectors(transformer, pairs.b)
        control = sts.random_control(head)
        if corpus:
            sentences = sample(corpus, _CENTRE_SENTENCES, seed=0)
            centre = control.centre_of(_vectors(transformer, sentences))
            control = Head(control.spec, {**control.tensors, "centre": centre})
    encoder = Encoder(store.open(model))
    left, right = encoder.encode(pairs.a).mixtures, encoder.encode(pairs.b).mixtures

    yield f"Spearman x100 on {len(pairs.gold):,} pairs of {stsb.name}"
    for pooling, score in sts.pooling_scores(head, a, b, pairs.gold).items():
        yield _row(pooling, "cosine", score)
    served = sts.served_scores(left, right, encoder.centre, pairs.gold)
    yield from (_row(f"mixture, served ({model})", m, s) for m, s in served.items())
    untrained = sts.mixture_scores(control, a, b, pairs.gold)
    yield from (_row("mixture, random encoder", m, s) for m, s in untrained.items())


def _vectors(transformer: Transformer, sentences: list[str]) -> list[Floats]:
    return [states.numpy() for states in transformer.token_vectors(sentences)]


def _row(aggregation: str, metric: str, score: float) -> str:
    return f"{aggregation:<28} {metric:<14} {score:6.2f}"
