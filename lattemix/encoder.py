"""Text to mixtures: tokenize, batch by similar length, run, put back in order."""

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lattemix.encodings import Encoding, TokenEncoding, add_windows
from lattemix.errors import EmptyTextError, NonFiniteError, TooLongError
from lattemix.session import Session, likely_device, usable_cores
from lattemix.settings import MAX_WINDOWS, ModelSettings, Provider, Truncate
from lattemix.static import LENGTH_MULTIPLE, StaticModel, round_up, sums
from lattemix.tokenization import (
    MAX_PARSED_TOKENS,
    ParsedText,
    Tokenizer,
    Tokens,
)
from model_store import Artifact, ArtifactError, Manifest, Store
from model_store.calibration import calibration_of
from model_store.choice import Device, choose
from model_store.latents import read as read_latents

# Token budget of a batch: the fixed cost of a run becomes 1/_OVERHEADS of its total, within bounds.
# On a CPU (per thread) throughput is flat from 192 to 512 tokens and drops when a batch no longer
# fits the cache.
_OVERHEADS = 32
_CPU_BUDGETS, _GPU_BUDGETS = (256, 384), (4096, 16_384)
# A lone batch runs on all cores, up to _MAX_CORES, if a batch ended within the last
# _AWAKE_SECONDS or this one would take more than _WAKING_SECONDS on one core; otherwise waking
# them costs more.
_MAX_CORES, _AWAKE_SECONDS, _WAKING_SECONDS = 8, 0.002, 0.004


class Encoder:
    """A loaded model. Thread-safe."""

    def __init__(
        self,
        artifact: Artifact,
        provider: Provider = "auto",
        threads: int = 0,
        device_id: int = 0,
        token_budget: int = 0,
        max_windows: int = MAX_WINDOWS,
        reason: str = "it was requested",
    ) -> None:
        self.reason = reason  # why this precision was chosen
        self.manifest: Manifest = artifact.manifest
        self.tokenizer = Tokenizer(artifact.tokenizer, self.manifest.max_tokens, max_windows)
        self._session = Session(artifact, provider, threads or 1, device_id)
        self.provider = self._session.provider
        on_cpu = self.provider == "cpu"
        # Single-threaded batches side by side beat one batch on all cores, whose threads wait for
        # the slowest at every operator. Runs of one session share its thread pool.
        self.parallel = usable_cores() if on_cpu and not threads else 1  # concurrent batches
        # A lone batch finishes soonest on all cores, except a static model's, which is short.
        self._wide, self._last_run = self._session, -math.inf
        if self.parallel > 1 and not self.manifest.is_static:
            self._wide = Session(artifact, "cpu", min(self.parallel, _MAX_CORES), spinning=True)
        # GPUs prefer few distinct lengths, in multiples of 8; on a CPU padding is only extra work.
        on_cpu_multiple = LENGTH_MULTIPLE if self.manifest.is_static else 1
        self._length_multiple = on_cpu_multiple if on_cpu else 8
        latent_shape = (self.manifest.latent_dims, self.manifest.classes)
        self.centre = _load(artifact.centre, latent_shape)  # [L, C], or None
        digest, latents = self.manifest.head.sha256, artifact.latents
        self.latents = read_latents(latents, digest, *latent_shape) if latents else None
        self.calibration = calibration_of(artifact)
        self._weights = _load(artifact.weights, (self.tokenizer.vocabulary_size,))  # [V], or None
        self.static: StaticModel | None = None  # encodes texts of a static model
        if self.manifest.is_static:
            parts = self.tokenizer, self._session, self._weights
            self.static = StaticModel(*parts, latent_shape)
        heaviest = 0 if self._weights is None else int(self._weights.argmax())
        self.probe = Tokens([heaviest], 1)  # the shortest text; every vocabulary has an id 0
        least, most = _CPU_BUDGETS if on_cpu else _GPU_BUDGETS
        if on_cpu:
            least, most = least * (threads or 1), most * (threads or 1)
        self._token_seconds, overhead = self._measure()
        self.overhead = min(overhead, most / _OVERHEADS)  # fixed cost of a run, in tokens
        self.token_budget = token_budget or max(least, round(self.overhead * _OVERHEADS))
        # `encode` does not use the measured budget: its results must be reproducible bit for bit.
        self._fixed_budget = token_budget or least
        if self.static is None:  # a static model's runs are small
            self._warm_up(self.max_parsed_tokens)

    @property
    def max_parsed_tokens(self) -> int:
        """Maximum number of tokens of a text that `parse` and `encode_tokens` return."""
        return self.manifest.max_tokens or MAX_PARSED_TOKENS

    @property
    def tokens_per_second(self) -> float:
        """Throughput measured at start-up; 0 if it could not be measured."""
        return self.parallel / self._token_seconds if self._token_seconds else 0.0

    @classmethod
    def load(cls, settings: ModelSettings) -> "Encoder":
        """Open and verify the model that the settings name, on the device they name."""
        expected = likely_device(settings.provider)
        encoder = cls._load_for(settings, expected)
        if encoder.provider == "cpu" != expected and ":" not in settings.model:
            encoder = cls._load_for(settings, "cpu")  # the GPU could not be started
        return encoder

    @classmethod
    def _load_for(cls, settings: ModelSettings, device: Device) -> "Encoder":
        artifact, reason = choose(Store(settings.store), settings.model, device)
        encoder = cls(
            artifact,
            provider=settings.provider,
            threads=settings.threads,
            device_id=settings.device_id,
            token_budget=settings.token_budget,
            max_windows=settings.max_windows,
            reason=reason,
        )
        if Artifact.read(artifact.path).manifest != artifact.manifest:
            raise ArtifactError(f"{artifact.path} was replaced while it was loaded: start again.")
        return encoder

    def encode(self, texts: Sequence[str], truncate: Truncate = "window") -> Encoding:
        """Return the mixture of every text, in order.

        Raises:
            EmptyTextError: the model finds no words in a text.
            TooLongError: a text is too long for "error" or "window".
        """
        if self.static is not None:
            mixtures, lengths = self.static.encode(texts, self.parallel)
            return Encoding(mixtures, lengths.tolist(), [False] * len(texts))
        # Equal texts are computed once.
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        order = [distinct[text] for text in texts]
        try:
            tokens = self.tokenize(list(distinct), truncate)
        except EmptyTextError as error:
            empty = [order.index(index) for index in (error.index, *error.others)]
            raise EmptyTextError(*empty) from None
        except TooLongError as error:
            reasons = {order.index(index): reason for index, reason in error.reasons.items()}
            raise TooLongError(reasons) from None
        mixtures = self._run_windows([self.windows(text) for text in tokens])
        return Encoding(
            mixtures[order] if len(order) > len(distinct) else mixtures,
            [tokens[i].total for i in order],
            [tokens[i].truncated for i in order],
        )

    def _run_windows(self, texts: Sequence[list[Tokens]]) -> NDArray[np.float32]:
        """Return the mixture [L, C] of every text, given its windows: [N, L, C]."""
        windows = list(chain.from_iterable(texts))
        owners = [index for index, text in enumerate(texts) for _ in text]
        shares = [share for text in texts for share in self.window_shares(text)]
        planned = list(batches([len(window.ids) for window in windows], self._fixed_budget))
        shape = (len(texts), self.manifest.latent_dims, self.manifest.classes)
        mixtures = np.zeros(shape, np.float32)

        def run(batch: list[int]) -> NDArray[np.float32]:
            return self.run([windows[i] for i in batch])

        with ThreadPoolExecutor(self.parallel) as executor:
            for batch, results in zip(planned, executor.map(run, planned), strict=True):
                parts = ((owners[i], shares[i]) for i in batch)
                add_windows(mixtures, parts, results)
        return mixtures

    def encode_tokens(
        self, texts: Sequence[str], truncate: Truncate = "right"
    ) -> list[TokenEncoding]:
        """Return the mixture of every token of every text; see `parse`."""
        return [
            self.token_encoding(parsed, self.run([parsed.tokens])[0])
            for parsed in self.parse(texts, truncate)
        ]

    def token_encoding(self, parsed: ParsedText, mixtures: NDArray[np.float32]) -> TokenEncoding:
        """Combine a parsed text with the mixtures [S, L, C] of its tokens, padding included."""
        tokens = parsed.tokens
        return TokenEncoding(
            parsed.spans,
            self.weights(tokens),
            mixtures[: len(tokens.ids)],
            tokens.total,
            tokens.truncated,
        )

    def tokenize(self, texts: Sequence[str], truncate: Truncate = "window") -> list[Tokens]:
        """Tokenize and truncate texts; "window" leaves long ones whole, for `windows`.

        Raises:
            EmptyTextError: a text has no tokens, or only tokens of weight 0.
            TooLongError: a text is too long for "error" or "window".
        """
        tokens = self.tokenizer(texts, truncate)
        self._check_empty(tokens)
        return tokens

    def windows(self, text: Tokens) -> list[Tokens]:
        """Split a text over the maximum length into windows, without those of weight 0."""
        windows = self.tokenizer.windows(text)
        if len(windows) == 1 or self._weights is None:
            return windows
        return [window for window in windows if self._raw_weights(window.ids).any()]

    def window_shares(self, windows: Sequence[Tokens]) -> list[float]:
        """Each window's share of its text's mixture, by the sum of its token weights."""
        if len(windows) == 1:
            return [1.0]
        weights = [float(self._raw_weights(window.ids).sum()) for window in windows]
        return [weight / sum(weights) for weight in weights]

    def parse(self, texts: Sequence[str], truncate: Truncate = "right") -> list[ParsedText]:
        """Tokenize and truncate texts, with token positions, for a run per token.

        There is one run per text, so "window" truncates like "right".

        Raises:
            EmptyTextError: a text has no tokens, or only tokens of weight 0.
            TooLongError: a text is too long for "error".
        """
        parsed = []
        for index, text in enumerate(texts):
            try:
                parsed.append(self.tokenizer.parse(text, truncate))
            except TooLongError as error:
                raise TooLongError({index: error.reason}) from None
        self._check_empty([text.tokens for text in parsed])
        return parsed

    def _check_empty(self, tokens: Sequence[Tokens]) -> None:
        empty = [
            index
            for index, text in enumerate(tokens)
            if text.empty or not (self._weights is None or self._raw_weights(text.ids).any())
        ]
        if empty:
            raise EmptyTextError(*empty)

    def padded_length(self, longest: int) -> int:
        """Length that a batch is padded to, given its longest text."""
        return min(round_up(longest, self._length_multiple), self.max_parsed_tokens)

    def run(self, batch: Sequence[Tokens], alone: bool = False) -> NDArray[np.float32]:
        """Return the mixtures [B, L, C] of one batch, or [B, S, L, C] if requested per token.

        Args:
            batch: texts that all request the same kind of result.
            alone: no other batch runs at the same time.

        Raises:
            NonFiniteError: a mixture holds NaN or infinity, as after an overflow in fp16.
        """
        lengths = np.array([len(tokens.ids) for tokens in batch])
        flat = np.fromiter(chain.from_iterable(tokens.ids for tokens in batch), np.int64)  # [T]
        shape = (len(batch), self.padded_length(lengths.max()))
        mask = np.arange(shape[1]) < lengths[:, None]  # [B, S]
        ids, pool = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        ids[mask] = flat
        per_token = batch[0].per_token
        if per_token:
            pool = _identity_pool(*shape)  # [B, S, S]
        else:
            pool[mask] = self._shares(flat, lengths)
            pool = pool[:, None, :]  # [B, 1, S]
        wide = alone and self._worth_waking(ids.size)
        session = self._wide if wide else self._session
        mixtures = session.run(ids, mask.astype(np.int64), pool)
        self._last_run = time.perf_counter()
        if not np.isfinite(mixtures).all():
            raise NonFiniteError
        return mixtures if per_token else mixtures[:, 0]

    def weights(self, tokens: Tokens) -> NDArray[np.float32]:
        """Each token's share of its text's mixture: [S], sums to 1."""
        return self._shares(np.array(tokens.ids), np.array([len(tokens.ids)]))

    def _shares(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """Each token's share of its text's mixture: [T], for texts of these lengths."""
        weights = self._raw_weights(ids)
        divisors: NDArray[np.float32] = np.repeat(sums(weights, lengths), lengths)
        return weights / divisors

    def _raw_weights(self, ids: NDArray[np.int64] | list[int]) -> NDArray[np.float32]:
        """Token weights before normalisation: [T]. All 1 gives the paper's mixture."""
        return np.ones(len(ids), np.float32) if self._weights is None else self._weights[ids]

    def _worth_waking(self, tokens: int) -> bool:
        """Whether a lone run is faster on all cores, which may be asleep."""
        awake = time.perf_counter() - self._last_run < _AWAKE_SECONDS
        return awake or tokens * self._token_seconds > _WAKING_SECONDS

    def _warm_up(self, length: int) -> None:
        """Run typical shapes: the first run of each allocates memory and, on a GPU, plans.

        The largest shape runs first and in all threads at once, so memory peaks at start-up.
        """
        rows = max(1, -(-self.token_budget // length))
        largest = self._probes(rows, max(1, min(length, self.token_budget // rows)))
        with ThreadPoolExecutor(self.parallel) as executor:
            list(executor.map(self.run, [largest] * self.parallel))
        while length:
            rows = 1 if self.provider == "cpu" else max(1, self.token_budget // length)
            batch = self._probes(rows, length)
            self.run(batch)
            if self._wide is not self._session:
                self.run(batch, alone=True)
            length //= 2

    def _measure(self) -> tuple[float, float]:
        """Measure seconds per token and the fixed cost of a run, in tokens."""
        rows = 1 if self.provider == "cpu" else 64
        longest = self.padded_length(64)
        few, many = self.padded_length(1), rows * longest
        short, long = self._seconds(self._probes(1, 1)), self._seconds(self._probes(rows, longest))
        token = (long - short) / max(1, many - few)
        return (token, max(0.0, short / token - few)) if token > 0 else (0.0, math.inf)

    def _seconds(self, batch: Sequence[Tokens]) -> float:
        """Fastest of four runs: other processes may slow some of them."""
        times = []
        for _ in range(4):
            start = time.perf_counter()
            self.run(batch)
            times.append(time.perf_counter() - start)
        return min(times)

    def _probes(self, rows: int, length: int) -> list[Tokens]:
        return [Tokens(self.probe.ids * length, length)] * rows


def _identity_pool(rows: int, length: int) -> NDArray[np.float32]:
    """A pool that keeps every token separate: [B, S, S]."""
    return np.broadcast_to(np.eye(length, dtype=np.float32), (rows, length, length))


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of similar lengths so that `longest x count` stays within the budget.

    A text longer than the budget gets a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _load(path: Path | None, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Read an optional array of an artifact."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            array: NDArray[np.float32] = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # the header is parsed as Python source, with many kinds of errors
        raise ArtifactError(f"{path} cannot be read as an array: {error}.") from error
    if array.shape != shape:
        raise ArtifactError(f"{path} has shape {array.shape}, not {shape}.")
    if array.dtype != np.float32:
        raise ArtifactError(f"{path} holds {array.dtype}, not float32.")
    return array
