"""Text to mixtures: tokenize, batch by similar length, run, put back in order."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.session import Session
from app.engine.tokenization import EmptyTextError, Tokenizer, Tokens
from app.settings import Provider, Settings
from model_store import Artifact, ArtifactError, LatteMixError, Manifest, Store


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
    ) -> None:
        self.manifest: Manifest = artifact.manifest
        self._tokenizer = Tokenizer(artifact.tokenizer, self.manifest.max_tokens)
        self._session = Session(artifact, provider, threads, device_id)
        self._token_budget = token_budget
        self._stopping = threading.Event()
        self.provider = self._session.provider
        self.centre = _load_centre(artifact)  # [L, C], or None
        # The first run allocates; a user should not wait for it. Every vocabulary has an id 0.
        self._run([Tokens([0], truncated=False, empty=False)])

    @classmethod
    def load(cls, settings: Settings) -> "Encoder":
        """Open the model the settings name, verified, on the device they ask for."""
        return cls(
            Store(settings.store).open(settings.model),
            provider=settings.provider,
            threads=settings.threads,
            device_id=settings.device_id,
            token_budget=settings.token_budget,
        )

    def encode(self, texts: Sequence[str]) -> Encoding:
        """Return the mixture of every text, in order. Equal texts are computed once.

        Raises:
            EmptyTextError: for the first text in which the model finds no words.
        """
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        tokens = self._tokenizer(list(distinct))
        for text, index in distinct.items():
            if tokens[index].empty:
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
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens.ids)] = tokens.ids
            mask[row, : len(tokens.ids)] = 1
        # Uniform weights, 1/K for each of a sentence's K tokens: the paper's mixture.
        pool = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None, :]  # [B, 1, S]
        return self._session.run(ids, mask, pool)[:, 0]  # [B, L, C]


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


def _load_centre(artifact: Artifact) -> NDArray[np.float32] | None:
    if artifact.centre is None:
        return None
    centre: NDArray[np.float32] = np.load(artifact.centre, allow_pickle=False)
    expected = (artifact.manifest.latent_dims, artifact.manifest.classes)
    if centre.shape != expected:
        raise ArtifactError(f"{artifact.centre} has shape {centre.shape}, not {expected}.")
    return centre
