"""A model in this process: encode, vectors, similarity, rank, matrix, explain."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lattemix import streaming
from lattemix.arguments import (
    Pair,
    TruncateOption,
    as_explain_truncate,
    as_metrics,
    as_pairs,
    as_texts,
    as_truncate,
    check_top_k,
    warn_truncated,
)
from lattemix.calibrated import PLURALS, ThresholdOn, calibrated, score_threshold
from lattemix.encoder import Encoder
from lattemix.encodings import Encoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.explain import explain
from lattemix.info import model_info
from lattemix.quantization import DType, check_dtype, quantize
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
from lattemix.settings import Truncate
from lattemix.similarity import check, matrix, prefix_dims, similarity, vectors
from lattemix.stored import check_fingerprint, rank_stored
from model_store import Metric

Floats = NDArray[np.float32]


class Model:
    """A loaded model. Thread-safe; see `lattemix.load`.

    Methods compare by the model's recommended metric unless `metric` or `metrics` names others.

    `truncate` says how to handle texts longer than the model's maximum length: "window" averages
    the mixtures of overlapping windows, "right" and "left" remove tokens from that side, and
    "error", or False, raises `TooLongError`, as do texts of more than `LATTEMIX_MAX_WINDOWS`
    windows. Default: `LATTEMIX_TRUNCATE`. Where the result does not report truncation, a
    `TruncationWarning` does. Static models have no maximum length; `explain` reads up to 512 of
    their tokens. A text without words raises `EmptyTextError`.
    """

    def __init__(self, encoder: Encoder, truncate: Truncate = "window") -> None:
        self._encoder = encoder
        self._truncate = truncate  # the default

    def __repr__(self) -> str:
        encoder = self._encoder
        return f"Model({encoder.manifest.reference!r}, provider={encoder.provider!r})"

    def info(self) -> ModelInfo:
        """Describe the model and its origin."""
        return model_info(self._encoder)

    def encode(self, texts: str | Iterable[str], *, truncate: TruncateOption = None) -> Floats:
        """Return the mixtures [N, L, C] of texts, or [L, C] of a single text.

        Example:
            ```python
            >>> import lattemix
            >>> mixtures = lattemix.load().encode(["A man is eating.", "The sea was calm."])
            >>> mixtures.ndim, mixtures.sum(axis=-1).round(3).min()
            (3, np.float32(1.0))

            ```
        """
        encoding = self._encode(as_texts(texts), truncate)
        warn_truncated(encoding.truncated, self._limit)
        mixtures: Floats = encoding.mixtures[0] if isinstance(texts, str) else encoding.mixtures
        return mixtures

    def vectors(
        self,
        texts: str | Iterable[str],
        *,
        metric: Metric | None = None,
        dimensions: int | None = None,
        dtype: DType = "float32",
        truncate: TruncateOption = None,
    ) -> NDArray[Any]:
        """Return unit vectors [N, D] of texts, or [D] of a single text, for a vector database.

        Dot products of vectors of full length are the metric; `js` and `l2` are not dot products
        and get the vectors of `bhattacharyya`.

        Example:
            ```python
            >>> import lattemix
            >>> lattemix.load().vectors(["A man is eating."], dimensions=1000).shape
            (1, 1000)

            ```

        Args:
            texts: a text, or several.
            metric: the similarity; default: the model's recommended metric.
            dimensions: length of the vectors, a multiple of the number of classes; default: all.
            dtype: `float32`, `float16`, `int8` or `binary`; see `lattemix.quantization.quantize`.
            truncate: how to handle long texts; see the class.
        """
        (chosen,), manifest = self._metrics(metric), self._encoder.manifest
        check_dtype(dtype, chosen)
        dims = prefix_dims(dimensions, manifest.latent_dims, manifest.classes)
        mixtures = self._encode(as_texts(texts), truncate).mixtures
        rows = quantize(vectors(chosen, mixtures, self._encoder.centre, dims), dtype)
        return rows[0] if isinstance(texts, str) else rows

    @overload
    def similarity(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> float: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Floats: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metrics: Sequence[Metric], truncate: TruncateOption = None
    ) -> dict[Metric, Floats]: ...

    def similarity(
        self,
        a: str | Iterable[Pair],
        b: str | None = None,
        *,
        metric: Metric | None = None,
        metrics: Sequence[Metric] | None = None,
        truncate: TruncateOption = None,
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
            truncate: how to handle long texts; see `Model`.

        Returns:
            One score for two sentences; an array [N] for N pairs; an array per metric if `metrics`
            is given.
        """
        requested = self._metrics(metric, metrics)
        texts = [text for pair in as_pairs(a, b) for text in pair]
        name = None if isinstance(a, str) else lambda i: f"pairs[{i // 2}][{i % 2}]"
        encoding = self._encode(texts, truncate, name)
        warn_truncated(encoding.truncated, self._limit)
        left, right, centre = encoding.mixtures[::2], encoding.mixtures[1::2], self._encoder.centre
        scores = {
            name: similarity(name, left, right, centre).astype(np.float32) for name in requested
        }
        if metrics is not None:
            return scores
        (values,) = scores.values()
        return float(values[0]) if isinstance(a, str) else values

    def rank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: TruncateOption = None,
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
        (chosen,) = self._metrics(metric)
        names = ["query", *(f"texts[{i}]" for i in range(len(texts)))]
        encoding = self._encode([query, *texts], truncate, names.__getitem__)
        warn_truncated(encoding.truncated, self._limit)
        mixtures = encoding.mixtures
        scores = matrix(chosen, mixtures[:1], mixtures[1:], self._encoder.centre)[0]
        meanings = calibrated(self._encoder.calibration, {chosen: scores})
        return [
            RankResult(
                index=i,
                score=scores[i],
                truncated=encoding.truncated[i + 1],
                text=texts[i],
                **{name: values[i] for name, values in meanings.items()},
            )
            for i in order(scores)[:top_k].tolist()
        ]

    def rank_mixtures(
        self,
        query: str,
        mixtures: Iterable[Floats],
        *,
        fingerprint: str,
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: TruncateOption = None,
    ) -> list[RankResult]:
        """Order stored mixtures by their similarity to a query, without encoding them again.

        Example:
            ```python
            >>> import lattemix
            >>> model = lattemix.load()
            >>> mixtures = model.encode(["The sea was calm.", "A man is eating."])
            >>> fingerprint = model.info().fingerprint  # store both
            >>> best, *_ = model.rank_mixtures("Lunch", mixtures, fingerprint=fingerprint)
            >>> best.index
            1

            ```

        Args:
            query: the sentence to compare with.
            mixtures: arrays [L, C] or [L*C]. Those with NaN are left out of the result.
            fingerprint: of the model that computed the mixtures.
            metric: the similarity; default: the model's recommended metric.
            top_k: maximum number of results.
            truncate: how to handle a long query.

        Raises:
            FingerprintError: another model computed the mixtures.
        """
        check_top_k(top_k)
        check_fingerprint("mixtures", fingerprint, self.info())
        (chosen,) = self._metrics(metric)
        encoding = self._encode([query], truncate, lambda _: "query")
        warn_truncated(encoding.truncated, self._limit)
        centre, calibration = self._encoder.centre, self._encoder.calibration
        return rank_stored(encoding.mixtures[0], mixtures, chosen, centre, top_k, calibration)

    def matrix(
        self,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        threshold: float | None = None,
        threshold_on: ThresholdOn = "score",
        top_k: int | None = None,
        truncate: TruncateOption = None,
    ) -> MatrixResponse:
        """Compare every two texts; return the pairs that reach the threshold, best first.

        Args:
            texts: the texts.
            metric: the similarity; default: the model's recommended metric.
            threshold: smallest score, probability or rating of a pair.
            threshold_on: which of them `threshold` is; see `ModelInfo.calibration`.
            top_k: maximum number of pairs.
            truncate: how to handle long texts; see `Model`.
        """
        check_top_k(top_k)
        (chosen,) = self._metrics(metric)
        smallest = score_threshold(threshold, threshold_on, self._encoder.calibration, chosen)
        encoding = self._encode(as_texts(texts), truncate)
        mixtures = encoding.mixtures
        table = matrix(chosen, mixtures, mixtures, self._encoder.centre)  # [N, N]
        pairs, scores = pairs_above(table, smallest)
        pairs, scores, count = pairs[:top_k], scores[:top_k], len(scores)
        meanings = calibrated(self._encoder.calibration, {chosen: scores})
        return MatrixResponse(
            **self._identity,
            metric=chosen,
            count=count,
            pairs=pairs.tolist(),
            scores=scores.tolist(),
            tokens=encoding.tokens,
            truncated=encoding.truncated,
            **{PLURALS[name]: values.tolist() for name, values in meanings.items()},
        )

    def explain(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Explanation:
        """Break the similarity of two sentences down by token, word and latent dim.

        It needs all tokens in one window, so that "window" as a default truncates like "right".

        Example:
            ```python
            >>> import lattemix
            >>> explained = lattemix.load().explain("A kid plays soccer.", "Children play.")
            >>> total = sum(token.contribution for token in explained.a.tokens)
            >>> abs(total - explained.similarity) < 1e-5
            True

            ```
        """
        (chosen,), encoder = self._metrics(metric), self._encoder
        chosen_truncate = as_explain_truncate(truncate, self._truncate)
        first, second = encoder.encode_tokens([a, b], chosen_truncate)
        content = explain(chosen, (a, b), (first, second), encoder.centre, encoder.latents)
        return Explanation.model_validate({**self._identity, **content})

    def iter_encode(
        self, texts: Iterable[str], *, truncate: TruncateOption = None
    ) -> Iterator[EncodedText | Rejection]:
        """Yield the mixture of each text; a text that cannot be encoded yields a `Rejection`."""
        return streaming.encoded_texts(self._encoder, texts, as_truncate(truncate, self._truncate))

    def iter_similarity(
        self,
        pairs: Iterable[Pair],
        metrics: Sequence[Metric] | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> Iterator[PairSimilarity | Rejection]:
        """Yield the similarities of each pair; one that cannot be encoded yields a `Rejection`."""
        requested, chosen = self._metrics(None, metrics), as_truncate(truncate, self._truncate)
        return streaming.pair_similarities(self._encoder, pairs, requested, chosen)

    def iter_rank(
        self,
        query: str,
        texts: Iterable[str],
        metric: Metric | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> Iterator[RankResult | Rejection]:
        """Yield each text's similarity to the query, in order of the texts; or a `Rejection`."""
        (chosen,), long = self._metrics(metric), as_truncate(truncate, self._truncate)
        encoding = self._encode([query], long, lambda _: "query")
        warn_truncated(encoding.truncated, self._limit)
        return streaming.query_similarities(self._encoder, encoding.mixtures, texts, chosen, long)

    @property
    def _identity(self) -> dict[str, Any]:
        manifest = self._encoder.manifest
        return {"model": manifest.name, "fingerprint": manifest.fingerprint}

    @property
    def _limit(self) -> int | None:
        return self._encoder.manifest.max_tokens

    def _encode(
        self,
        texts: Sequence[str],
        truncate: TruncateOption,
        name: Callable[[int], str] | None = None,
    ) -> Encoding:
        """Encode texts; errors call the text at an index by its `name`."""
        try:
            return self._encoder.encode(texts, as_truncate(truncate, self._truncate))
        except EmptyTextError as error:
            if name is None:
                raise
            named = name(error.index)
            raise EmptyTextError(error.index, *error.others, name=named) from None
        except TooLongError as error:
            if name is None:
                raise
            raise TooLongError(error.reasons, name(error.index)) from None

    def _metrics(
        self, metric: Metric | None, metrics: Sequence[Metric] | None = None
    ) -> list[Metric]:
        requested = as_metrics(metric, metrics, self._encoder.manifest.recommended_metric)
        for name in requested:
            check(name, self._encoder.centre)
        return requested
