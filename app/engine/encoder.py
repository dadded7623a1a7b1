"""Text to mixtures: tokenize, batch by similar length, run, put back in order."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.engine.session import Session, likely_device
from app.engine.tokenization import EmptyTextError, Tokenizer, Tokens
from app.settings import Provider, Settings
from model_store import Artifact, ArtifactError, LatteMixError, Manifest, Store
from model_store.choice import Device, choose


class StoppedError(LatteMixError):
    """The encoder was told to stop before it was done."""


@dataclass(frozen=True)
class Encoding:
    """What a list of texts became."""

    mixtures: NDArray[np.float32]  # [N, L, C]
    tokens: list[int]
    truncated: list[bool]


class Encoder:
    """One loaded model. Safe to call from several threads."""

    def __init__(
        self,
        artifact: Artifact,
        provider: Provider = "auto",
        threads: int = 0,
        device_id: int = 0,
        token_budget: int = 1024,
        reason: str = "it was asked for",
    ) -> None:
        self.reason = reason  # of all precisions, for this one
        self.manifest: Manifest = artifact.manifest
        self._tokenizer = Tokenizer(artifact.tokenizer, self.manifest.max_tokens)
        self._session = Session(artifact, provider, threads, device_id)
        self._token_budget = token_budget
        self._stopping = threading.Event()
        self.provider = self._session.provider
        latent_shape = (self.manifest.latent_dims, self.manifest.classes)
        self.centre = _load(artifact.centre, latent_shape)  # [L, C], or None
        self._weights = _load(artifact.weights, (self._tokenizer.vocabulary_size,))  # [V], or None
        # The first run allocates; a user should not wait for it. Every vocabulary has an id 0.
        self._run([Tokens([0], truncated=False, empty=False)])

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
        return cls(
            artifact,
            provider=settings.provider,
            threads=settings.threads,
            device_id=settings.device_id,
            token_budget=settings.token_budget,
            reason=reason,
        )

    def encode(self, texts: Sequence[str]) -> Encoding:
        """Return the mixture of every text, in order. Equal texts are computed once.

        Raises:
            EmptyTextError: for the first text in which the model finds no words.
        """
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        tokens = self._tokenizer(list(distinct))
        for text, index in distinct.items():
            if tokens[index].empty or not self._weigh(tokens[index]).any():
                raise EmptyTextError(texts.index(text))
        shape = (len(distinct), self.manifest.latent_dims, self.manifest.classes)
        mixtures = np.empty(shape, np.float32)
        for batch in batches([len(t.ids) for t in tokens], self._token_budget):
            if self._stopping.is_set():
                raise StoppedError("The service is stopping.")
            mixtures[batch] = self._run([tokens[i] for i in batch])
        places = [distinct[text] for text in texts]
        return Encoding(
            mixtures[places] if len(places) > len(distinct) else mixtures,
            [len(tokens[i].ids) for i in places],
            [tokens[i].truncated for i in places],
        )

    def stop(self) -> None:
        """Give up what is being encoded, at its next batch."""
        self._stopping.set()

    def _run(self, batch: list[Tokens]) -> NDArray[np.float32]:
        shape = (len(batch), max(len(tokens.ids) for tokens in batch))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)  # [B, S]
        pool = np.zeros(shape, np.float32)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens.ids)] = tokens.ids
            mask[row, : len(tokens.ids)] = 1
            weights = self._weigh(tokens)
            pool[row, : len(tokens.ids)] = weights / weights.sum()
        return self._session.run(ids, mask, pool[:, None, :])[:, 0]  # [B, L, C]

    def _weigh(self, tokens: Tokens) -> NDArray[np.float32]:
        """How much each token counts. All the same is the paper's mixture: 1/K for each of K."""
        if self._weights is None:
            return np.ones(len(tokens.ids), np.float32)
        return self._weights[tokens.ids]


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


def _load(path: Path | None, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """One of the arrays an artifact may carry."""
    if path is None:
        return None
    array: NDArray[np.float32] = np.load(path, allow_pickle=False)
    if array.shape != shape:
        raise ArtifactError(f"{path} has shape {array.shape}, not {shape}.")
    return array
