"""Text to mixtures: tokenize, batch by similar length, run, put back in order."""

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.engine.errors import EmptyTextError, NonFiniteError
from app.engine.session import Session, likely_device
from app.engine.tokenization import Parsed, Piece, Side, Tokenizer, Tokens
from app.settings import Provider, Settings
from model_store import Artifact, ArtifactError, Manifest, Store
from model_store.choice import Device, choose
from model_store.latents import read as read_latents

# Tokens in a batch: as many as make what a run costs besides them 1 part in so many, within bounds.
# On a CPU, where they are of a thread, its speed is the same from 192 to 512 tokens, and less
# beyond: they no longer fit its cache.
_OVERHEADS = 32
_CPU_BUDGETS, _GPU_BUDGETS = (256, 384), (4096, 16_384)
# All cores, but not more than so many, run a batch that is alone: if they are awake, having worked
# so lately, or it would take so long on one that they are worth waking.
_MOST_CORES, _AWAKE_SECONDS, _WAKING_SECONDS = 8, 0.002, 0.004


@dataclass(frozen=True)
class Encoding:
    """What a list of texts became."""

    mixtures: NDArray[np.float32]  # [N, L, C]
    tokens: list[int]  # of the whole text; of one that was cut, not all were read
    truncated: list[bool]


@dataclass(frozen=True)
class Dissection:
    """What a text became, token by token."""

    pieces: list[Piece]
    weights: NDArray[np.float32]  # [S], which add up to 1
    mixtures: NDArray[np.float32]  # [S, L, C]
    tokens: int
    truncated: bool

    @cached_property
    def parts(self) -> NDArray[np.float64]:
        """What each token brings into the text's mixture: [S, L*C]."""
        flat = self.mixtures.reshape(len(self.mixtures), -1)
        return np.multiply(flat, self.weights[:, None], dtype=np.float64)

    @cached_property
    def mixture(self) -> NDArray[np.float32]:
        """The text's own: [L, C]."""
        whole: NDArray[np.float64] = self.parts.sum(axis=0)
        return whole.reshape(self.mixtures.shape[1:]).astype(np.float32)


class Encoder:
    """One loaded model. Safe to call from several threads."""

    def __init__(
        self,
        artifact: Artifact,
        provider: Provider = "auto",
        threads: int = 0,
        device_id: int = 0,
        token_budget: int = 0,
        reason: str = "it was asked for",
    ) -> None:
        self.reason = reason  # of all precisions, for this one
        self.manifest: Manifest = artifact.manifest
        self._tokenizer = Tokenizer(artifact.tokenizer, self.manifest.max_tokens)
        self._session = Session(artifact, provider, threads or 1, device_id)
        self.provider = self._session.provider
        on_cpu = self.provider == "cpu"
        # Batches side by side, each on its own core, beat one on all of them, whose threads would
        # wait for the slowest at every operator. They cannot have several each: runs of one
        # session share its threads.
        self.parallel = usable_cores() if on_cpu and not threads else 1  # batches at once
        # But one that has the machine to itself is done soonest on all of it.
        self._wide, self._ended = self._session, -math.inf  # when the last run did
        if self.parallel > 1:
            cores = min(self.parallel, _MOST_CORES)
            self._wide = Session(artifact, "cpu", cores, spinning=True)
        # A GPU likes lengths in eights, and few different ones; on a CPU padding is only work.
        self._step = 1 if on_cpu else 8
        latent_shape = (self.manifest.latent_dims, self.manifest.classes)
        self.centre = _load(artifact.centre, latent_shape)  # [L, C], or None
        digest = self.manifest.head.sha256
        told = artifact.latents
        self.latents = read_latents(told, digest, *latent_shape) if told else None
        self._weights = _load(artifact.weights, (self._tokenizer.vocabulary_size,))  # [V], or None
        weightiest = 0 if self._weights is None else int(self._weights.argmax())
        # The shortest text there is; every vocabulary has an id 0.
        self.probe = Tokens([weightiest], 1)
        least, most = _CPU_BUDGETS if on_cpu else _GPU_BUDGETS
        if on_cpu:
            least, most = least * (threads or 1), most * (threads or 1)
        self._token_seconds, overhead = self._measure()
        self.overhead = min(overhead, most / _OVERHEADS)
        # Of the service's batches; `encode` is to give the same to the last bit on every day.
        self.token_budget = token_budget or max(least, round(self.overhead * _OVERHEADS))
        self._steady_budget = token_budget or least
        self._warm_up()

    @property
    def tokens_per_second(self) -> float:
        """What it reads if there is much, as measured at the start; 0 if that could not be."""
        return self.parallel / self._token_seconds if self._token_seconds else 0.0

    @classmethod
    def load(cls, settings: Settings) -> "Encoder":
        """Open the model the settings name, verified, on the device they ask for."""
        likely = likely_device(settings.provider)
        encoder = cls._on(settings, likely)
        if encoder.provider == "cpu" != likely and ":" not in settings.model:
            encoder = cls._on(settings, "cpu")  # a GPU was hoped for and could not be started
        return encoder

    @classmethod
    def _on(cls, settings: Settings, device: Device) -> "Encoder":
        artifact, reason = choose(Store(settings.store), settings.model, device)
        encoder = cls(
            artifact,
            provider=settings.provider,
            threads=settings.threads,
            device_id=settings.device_id,
            token_budget=settings.token_budget,
            reason=reason,
        )
        if Artifact.read(artifact.path).manifest != artifact.manifest:  # which was verified
            raise ArtifactError(f"{artifact.path} was replaced while it was loaded: start again.")
        return encoder

    def encode(self, texts: Sequence[str]) -> Encoding:
        """Return the mixture of every text, in order. Equal texts are computed once.

        Raises:
            EmptyTextError: for the first text in which the model finds no words.
        """
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        places = [distinct[text] for text in texts]
        try:
            tokens = self.tokenize(list(distinct))
        except EmptyTextError as error:
            empty = [places.index(index) for index in (error.index, *error.others)]
            raise EmptyTextError(*empty) from None
        shape = (len(distinct), self.manifest.latent_dims, self.manifest.classes)
        mixtures = np.empty(shape, np.float32)
        planned = batches([len(text.ids) for text in tokens], self._steady_budget)

        def compute(batch: list[int]) -> None:
            mixtures[batch] = self.run([tokens[i] for i in batch])

        with ThreadPoolExecutor(self.parallel) as pool:
            for _ in pool.map(compute, planned):
                pass  # but raise what failed
        return Encoding(
            mixtures[places] if len(places) > len(distinct) else mixtures,
            [tokens[i].total for i in places],
            [tokens[i].truncated for i in places],
        )

    def tokenize(self, texts: Sequence[str], cut: Side = "right") -> list[Tokens]:
        """Return what the model reads of each text, or raise `EmptyTextError` for those empty.

        A text is empty, too, if none of its tokens counts.
        """
        tokens = self._tokenizer(texts, cut)
        self._check(tokens)
        return tokens

    def parse(self, texts: Sequence[str], cut: Side = "right") -> list[Parsed]:
        """The same, with where each token stands; for a run it asks for every token's mixture."""
        parsed = [self._tokenizer.parse(text, cut) for text in texts]
        self._check([text.tokens for text in parsed])
        return parsed

    def _check(self, tokens: Sequence[Tokens]) -> None:
        empty = [i for i, text in enumerate(tokens) if text.empty or not self._weigh(text).any()]
        if empty:
            raise EmptyTextError(*empty)

    def padded_length(self, longest: int) -> int:
        """The length that a batch is brought to."""
        return min(-(-longest // self._step) * self._step, self.manifest.max_tokens)

    def run(self, batch: Sequence[Tokens], alone: bool = False) -> NDArray[np.float32]:
        """Return the mixtures [B, L, C] of one batch, or of its tokens [B, S, L, C] if asked for.

        All must ask for the same. `alone` says that no other runs beside it.

        Raises:
            NonFiniteError: a mixture holds NaN or infinity, as after an overflow in fp16.
        """
        shape = (len(batch), self.padded_length(max(len(tokens.ids) for tokens in batch)))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)  # [B, S]
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens.ids)] = tokens.ids
            mask[row, : len(tokens.ids)] = 1
        each = batch[0].each
        pool = _every_token(*shape) if each else self._pool(batch, shape)  # [B, G, S]
        wide = alone and self._worth_waking(ids.size)
        mixtures = (self._wide if wide else self._session).run(ids, mask, pool)
        self._ended = time.perf_counter()
        if not np.isfinite(mixtures).all():
            raise NonFiniteError
        return mixtures if each else mixtures[:, 0]

    def _pool(self, batch: Sequence[Tokens], shape: tuple[int, int]) -> NDArray[np.float32]:
        """How each text is averaged: [B, 1, S]."""
        pool = np.zeros(shape, np.float32)
        for row, tokens in enumerate(batch):
            pool[row, : len(tokens.ids)] = self.weights(tokens)
        return pool[:, None, :]

    def weights(self, tokens: Tokens) -> NDArray[np.float32]:
        """What part of its text's mixture each token is: [S]."""
        weights = self._weigh(tokens)
        shares: NDArray[np.float32] = weights / weights.sum()
        return shares

    def _worth_waking(self, tokens: int) -> bool:
        """Whether a run gains by all cores: others than its own may sleep, and wake up slowly."""
        awake = time.perf_counter() - self._ended < _AWAKE_SECONDS
        return awake or tokens * self._token_seconds > _WAKING_SECONDS

    def _warm_up(self) -> None:
        """Run the shapes that will come: the first run of each allocates and, on a GPU, plans.

        The largest first and in every place at once, so that most memory is taken by now.
        """
        length = self.manifest.max_tokens
        rows = max(1, -(-self.token_budget // length))
        largest = self._probes(rows, max(1, min(length, self.token_budget // rows)))
        with ThreadPoolExecutor(self.parallel) as pool:
            list(pool.map(self.run, [largest] * self.parallel))
        while length:
            rows = 1 if self.provider == "cpu" else max(1, self.token_budget // length)
            batch = self._probes(rows, length)
            self.run(batch)
            if self._wide is not self._session:
                self.run(batch, alone=True)
            length //= 2

    def _measure(self) -> tuple[float, float]:
        """What a token takes, in seconds, and what a run takes besides, in tokens."""
        rows = 1 if self.provider == "cpu" else 64
        longest = self.padded_length(64)
        few, many = self.padded_length(1), rows * longest
        short, long = self._seconds(self._probes(1, 1)), self._seconds(self._probes(rows, longest))
        token = (long - short) / max(1, many - few)
        return (token, max(0.0, short / token - few)) if token > 0 else (0.0, math.inf)

    def _seconds(self, batch: Sequence[Tokens]) -> float:
        """Of a run; the fastest of some, since something else may have been in the way."""
        times = []
        for _ in range(4):
            start = time.perf_counter()
            self.run(batch)
            times.append(time.perf_counter() - start)
        return min(times)

    def _probes(self, rows: int, length: int) -> list[Tokens]:
        return [Tokens(self.probe.ids * length, length)] * rows

    def _weigh(self, tokens: Tokens) -> NDArray[np.float32]:
        """How much each token counts. All the same is the paper's mixture: 1/K for each of K."""
        if self._weights is None:
            return np.ones(len(tokens.ids), np.float32)
        return self._weights[tokens.ids]


def _every_token(rows: int, length: int) -> NDArray[np.float32]:
    """A pool that leaves every token by itself: [B, S, S]."""
    return np.broadcast_to(np.eye(length, dtype=np.float32), (rows, length, length))


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices by similar length so that `longest x count` stays within the budget.

    A text longer than the whole budget still gets a batch, of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process is bound to, or as many as its container's quota is worth."""
    # Not every system binds processes; Linux does.
    bound = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    try:
        share, period = map(int, quota.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no quota, or "max"
        return len(bound)
    return max(1, min(len(bound), -(-share // period)))


def _load(path: Path | None, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """One of the arrays an artifact may carry."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            array: NDArray[np.float32] = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a header is Python source, so it fails in as many ways
        raise ArtifactError(f"{path} cannot be read as an array: {error}.") from error
    if array.shape != shape:
        raise ArtifactError(f"{path} has shape {array.shape}, not {shape}.")
    if array.dtype != np.float32:
        raise ArtifactError(f"{path} holds {array.dtype}, not float32.")
    return array
