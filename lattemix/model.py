"""A model in this process: encode, similarity, rank, matrix, explain."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from lattemix import __version__
from lattemix.arguments import Pair, as_pairs, as_texts, check_top_k
from lattemix.encoder import Encoder, Encoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.explain import explain
from lattemix.ranking import order, pairs_above
from lattemix.responses import (
    EncodedText,
    Explanation,
    MatrixResponse,
    ModelInfo,
    PairSimilarity,
    RankResult,
    Rejection,
)
from lattemix.settings import ModelSettings, Provider, load_settings
from lattemix.similarity import check, matrix, similarity
from model_store import LatteMixError, Metric, Store
from model_store.store import HEADS

Floats = NDArray[np.float32]
T = TypeVar("T")

_CHUNK = 1024  # items that the iterators encode together


class TruncationWarning(UserWarning):
    """Texts longer than the model's maximum length were truncated."""


def load(
    model: str | None = None,
    *,
    store: str | Path | None = None,
    provider: Provider | None = None,
    threads: int | None = None,
    device_id: int | None = None,
) -> "Model":
    """Load a model; a shipped one is assembled first if the store does not have it.

    Example:
        ```python
        >>> import lattemix
        >>> model = lattemix.load()
        >>> model
        Model('default:int8', provider='cpu')

        ```

    Args:
        model: `name` or `name:precision`; else `LATTEMIX_MODEL`, or `default`.
        store: directory of the assembled models; else `LATTEMIX_STORE`.
        provider: `auto`, `cpu`, `cuda` or `tensorrt`; else `LATTEMIX_PROVIDER`.
        threads: intra-op threads per batch (CPU); else `LATTEMIX_THREADS`.
        device_id: GPU index; else `LATTEMIX_DEVICE_ID`.

    Raises:
        LatteMixError: there is no such model, or it cannot run on the device.
    """
    settings = load_settings(
        ModelSettings,
        model=model,
        store=store,
        provider=provider,
        threads=threads,
        device_id=device_id,
    )
    assemble_if_shipped(settings)
    return Model(Encoder.load(settings))


def assemble_if_shipped(settings: ModelSettings) -> None:
    """Assemble a model whose head is shipped, if the store has no precision of it."""
    name, _, precision = settings.model.partition(":")
    head, store = HEADS / name, Store(settings.store)
    if precision or not head.is_dir() or store.precisions(name):
        return
    try:
        from lattemix.build.assemble import assemble
    except ModuleNotFoundError as error:
        raise LatteMixError(
            f"{settings.store} has no model {name!r}, and assembling it needs {error.name}: "
            "pip install 'lattemix[export]'."
        ) from error
    assemble(head, store, name, tell=_announce, precisions=("fp32", "int8"))


def _announce(message: str) -> None:
    """Show a step of the assembly: it takes up to a minute, the first time."""
    print(f"lattemix: {message}", file=sys.stderr, flush=True)


class Model:
    """A loaded model. Thread-safe; see `load`.

    Texts longer than the model's maximum length are truncated with a `TruncationWarning`, or raise
    `TooLongError` with `truncate=False`. A text without words raises `EmptyTextError`.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        encoder = self._encoder
        return f"Model({encoder.manifest.reference!r}, provider={encoder.provider!r})"

    def info(self) -> ModelInfo:
        """Describe the model and its origin."""
        return describe(self._encoder)

    @overload
    def encode(self, texts: str, *, truncate: bool = True) -> Floats: ...

    @overload
    def encode(self, texts: Iterable[str], *, truncate: bool = True) -> Floats: ...

    def encode(self, texts: str | Iterable[str], *, truncate: bool = True) -> Floats:
        """Return the mixtures [N, L, C] of texts, or [L, C] of a single text.

        Example:
            ```python
            >>> import lattemix
            >>> mixtures = lattemix.load().encode(["A man is eating.", "The sea was calm."])
            >>> mixtures.ndim, mixtures.sum(axis=-1).round(3).min()
            (3, np.float32(1.0))

            ```
        """
        if isinstance(texts, str):
            mixture: Floats = self._encode([texts], truncate).mixtures[0]
            return mixture
        return self._encode(as_texts(texts), truncate).mixtures

    @overload
    def similarity(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: bool = True
    ) -> float: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metric: Metric | None = None, truncate: bool = True
    ) -> Floats: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metrics: Sequence[Metric], truncate: bool = True
    ) -> dict[Metric, Floats]: ...

    def similarity(
        self,
        a: str | Iterable[Pair],
        b: str | None = None,
        *,
        metric: Metric | None = None,
        metrics: Sequence[Metric] | None = None,
        truncate: bool = True,
    ) -> float | Floats | dict[Metric, Floats]:
        """Compare two sentences, or the sentences of each pair. Higher is more similar.

        Example:
            ```python
            >>> import lattemix
            >>> model = lattemix.load()
            >>> lunch = model.similarity("A man is eating.", "Someone is having lunch.")
            >>> sea = model.similarity("A man is eating.", "The sea was calm.")
            >>> lunch > sea
            True
            >>> pairs = [("A man is eating.", "Someone is having lunch.")]
            >>> sorted(model.similarity(pairs, metrics=["cosine", "js"]))
            ['cosine', 'js']

            ```

        Args:
            a: a sentence, or pairs of sentences.
            b: the other sentence, if `a` is one.
            metric: the similarity; default: the model's recommended metric.
            metrics: several similarities, for pairs.
            truncate: whether to truncate long texts.

        Returns:
            One score for two sentences; an array [N] for N pairs; an array per metric if `metrics`
            is given.
        """
        pairs, single = as_pairs(a, b)
        wanted = self._metrics(metrics or (metric,))
        texts = [text for pair in pairs for text in pair]
        mixtures = self._encode(texts, truncate).mixtures
        left, right, centre = mixtures[::2], mixtures[1::2], self._encoder.centre
        scores = {name: similarity(name, left, right, centre).astype(np.float32) for name in wanted}
        if metrics is not None:
            return scores
        (values,) = scores.values()
        return float(values[0]) if single else values

    def rank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> list[RankResult]:
        """Order texts by their similarity to a query, most similar first.

        Example:
            ```python
            >>> import lattemix
            >>> answers = ["The sea was calm.", "Change it under Settings, Password."]
            >>> best, *_ = lattemix.load().rank("How do I reset my password?", answers)
            >>> best.index, best.text
            (1, 'Change it under Settings, Password.')

            ```
        """
        check_top_k(top_k)
        texts = as_texts(texts)
        chosen = self._metric(metric)
        encoding = self._encode([query, *texts], truncate)
        mixtures = encoding.mixtures
        scores = matrix(chosen, mixtures[:1], mixtures[1:], self._encoder.centre)[0]
        return [
            RankResult(index=i, score=scores[i], truncated=encoding.truncated[i + 1], text=texts[i])
            for i in order(scores)[:top_k].tolist()
        ]

    def matrix(
        self,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> MatrixResponse:
        """Compare every two texts; return the pairs that reach the threshold, best first."""
        check_top_k(top_k)
        chosen = self._metric(metric)
        encoding = self._encode(as_texts(texts), truncate)
        mixtures = encoding.mixtures
        table = matrix(chosen, mixtures, mixtures, self._encoder.centre)  # [N, N]
        pairs, scores = pairs_above(table, threshold)
        return MatrixResponse(
            model=self._encoder.manifest.name,
            metric=chosen,
            count=len(scores),
            pairs=pairs[:top_k].tolist(),
            scores=scores[:top_k].tolist(),
            tokens=encoding.tokens,
            truncated=encoding.truncated,
        )

    def explain(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: bool = True
    ) -> Explanation:
        """Break the similarity of two sentences down by token, word and latent dim.

        Example:
            ```python
            >>> import lattemix
            >>> found = lattemix.load().explain("A kid plays soccer.", "Children play football.")
            >>> total = sum(token.contribution for token in found.a.tokens)
            >>> abs(total - found.similarity) < 1e-5
            True

            ```
        """
        chosen, encoder = self._metric(metric), self._encoder
        first, second = encoder.encode_tokens([a, b])
        self._check_length(
            [first.tokens, second.tokens], [first.truncated, second.truncated], truncate
        )
        content = explain(chosen, (a, b), (first, second), encoder.centre, encoder.latents)
        return Explanation.model_validate({"model": encoder.manifest.name, **content})

    def iter_encode(self, texts: Iterable[str]) -> Iterator[EncodedText | Rejection]:
        """Yield the mixture of each text; a text that cannot be encoded yields a `Rejection`."""

        def rows(encoding: Encoding) -> Iterator[EncodedText]:
            columns = (encoding.mixtures, encoding.tokens, encoding.truncated)
            return (EncodedText(*row) for row in zip(*columns, strict=True))

        return self._rows(((text,) for text in texts), rows)

    def iter_similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] | None = None
    ) -> Iterator[PairSimilarity | Rejection]:
        """Yield the similarities of each pair; one that cannot be encoded yields a `Rejection`."""
        wanted = self._metrics(metrics or (None,))

        def rows(encoding: Encoding) -> Iterator[PairSimilarity]:
            left, right = encoding.mixtures[::2], encoding.mixtures[1::2]
            scores = {
                name: similarity(name, left, right, self._encoder.centre).astype(np.float32)
                for name in wanted
            }
            for i in range(len(left)):
                truncated = encoding.truncated[2 * i : 2 * i + 2]
                values = {name: float(column[i]) for name, column in scores.items()}
                yield PairSimilarity(truncated=truncated, **values)

        return self._rows(pairs, rows)

    def iter_rank(
        self, query: str, texts: Iterable[str], metric: Metric | None = None
    ) -> Iterator[RankResult | Rejection]:
        """Yield each text's similarity to the query, in order; or a `Rejection`."""
        chosen = self._metric(metric)
        source = self._encoder.encode([query]).mixtures
        position = 0

        def rows(encoding: Encoding) -> Iterator[RankResult]:
            scores = matrix(chosen, source, encoding.mixtures, self._encoder.centre)[0]
            for score, truncated in zip(scores.tolist(), encoding.truncated, strict=True):
                yield RankResult(index=0, score=score, truncated=truncated)

        for position, row in enumerate(self._rows(((text,) for text in texts), rows)):
            if isinstance(row, RankResult):
                row.index = position
            yield row

    def _rows(
        self, items: Iterable[tuple[str, ...]], rows: Callable[[Encoding], Iterator[T]]
    ) -> Iterator[T | Rejection]:
        """Encode items in chunks and yield a row for each, or a `Rejection` for an empty one."""
        start = 0
        iterator = iter(items)
        while chunk := [*islice(iterator, _CHUNK)]:
            rejected = self._rejections(chunk, start)
            texts = [text for i, item in enumerate(chunk) if i not in rejected for text in item]
            found = rows(self._encoder.encode(texts)) if texts else iter(())
            for i in range(len(chunk)):
                yield rejected[i] if i in rejected else next(found)
            start += len(chunk)

    def _rejections(self, items: Sequence[tuple[str, ...]], start: int) -> dict[int, Rejection]:
        """Rejections by position in `items`, whose first is item number `start`."""
        owners = [i for i, item in enumerate(items) for _ in item]
        try:
            self._encoder.tokenize([text for item in items for text in item])
        except EmptyTextError as error:
            empty = {owners[text] for text in (error.index, *error.others)}
            reason = f"Text {error.reason}."
            return {i: Rejection(start + i, reason) for i in empty}
        return {}

    def _encode(self, texts: Sequence[str], truncate: bool) -> Encoding:
        if not truncate:  # before the work
            tokens = self._encoder.tokenize(texts)
            self._check_length([t.total for t in tokens], [t.truncated for t in tokens], truncate)
        encoding = self._encoder.encode(texts)
        self._check_length(encoding.tokens, encoding.truncated, truncate)
        return encoding

    def _check_length(
        self, tokens: Sequence[int], truncated: Sequence[bool], truncate: bool
    ) -> None:
        """Warn about truncated texts, or raise if they must not be truncated."""
        count = sum(truncated)
        if not count:
            return
        limit = self._encoder.manifest.max_tokens
        if not truncate:
            index = list(truncated).index(True)
            raise TooLongError(index, tokens[index], limit)
        message = (
            f"{count:,} of {len(tokens):,} texts have more than {limit} tokens and were truncated; "
            "pass truncate=False to raise an error instead."
        )
        warnings.warn(message, TruncationWarning, stacklevel=4)

    def _metrics(self, requested: Sequence[Metric | None]) -> list[Metric]:
        return [self._metric(metric) for metric in requested]

    def _metric(self, requested: Metric | None) -> Metric:
        metric = requested or self._encoder.manifest.recommended_metric
        check(metric, self._encoder.centre)
        return metric


def describe(encoder: Encoder) -> ModelInfo:
    """Describe a loaded model."""
    manifest = encoder.manifest
    return ModelInfo(
        model=manifest.name,
        precision=manifest.precision,
        precision_reason=encoder.reason,
        provider=encoder.provider,
        latent_dims=manifest.latent_dims,
        classes=manifest.classes,
        temperature=manifest.temperature,
        metrics=[m for m in get_args(Metric) if m != "centred" or encoder.centre is not None],
        recommended_metric=manifest.recommended_metric,
        backbone=manifest.backbone,
        corpus=manifest.head.corpus,
        parity=manifest.parity,
        evaluation=dict(manifest.evaluation),
        model_id=manifest.reference,
        model_sha=manifest.files["model.onnx"].sha256,
        model_dtype=manifest.precision,
        max_input_length=manifest.max_tokens,
        max_batch_tokens=encoder.token_budget,
        version=__version__,
    )
