"""Finetune a backbone on SNLI by the recipe of Sentence-BERT (Reimers & Gurevych, 2019).

Both sentences of a pair are mean-pooled to u and v, and a linear classifier of (u, v, |u - v|)
predicts the label of the pair. Encoder and classifier are trained; only the encoder is written.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from lattemix.build.backbones import BackboneError, Checkpoint, open_backbone
from lattemix.build.backbones.checkpoint import CONFIG, SAFETENSORS, weight_files
from lattemix.tokenization import Tokenizer
from model_store import LatteMixError
from model_store.manifest import TOKENIZER
from training.backbones.transformer import Transformer
from training.corpus import CorpusError
from training.device import autocast
from training.output import new_directory
from training.paper.nli import LABELS, NliCorpus, Pair
from training.progress import progress_bar
from training.trainer import linear_warmup_decay

_MAX_TOKENS = 128  # per sentence
_WARMUP = 0.1  # share of the steps
_WINDOW = 200  # steps that the reported loss and accuracy are averaged over


@dataclass(frozen=True)
class Settings:
    """Hyperparameters; the defaults are Sentence-BERT's."""

    epochs: int = 1
    batch: int = 16  # pairs
    learning_rate: float = 2e-5
    seed: int = 0


class PairClassifier(torch.nn.Module):
    """An encoder, mean pooling and a linear classifier of (u, v, |u - v|)."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        max_tokens = min(_MAX_TOKENS, checkpoint.positions or _MAX_TOKENS)
        self._transformer = Transformer(checkpoint, max_tokens)
        self._tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)
        self.device = self._transformer.device
        self.encoder = self._transformer.model.requires_grad_(True)
        width = 3 * self._transformer.hidden_size
        self.classifier = torch.nn.Linear(width, len(LABELS)).to(self.device)

    def forward(self, pairs: Sequence[Pair]) -> Tensor:
        """The logits of the labels, [B, 3]."""
        with autocast(self.device):
            u = self._mean([pair.premise for pair in pairs])
            v = self._mean([pair.hypothesis for pair in pairs])
        logits: Tensor = self.classifier(torch.cat([u, v, (u - v).abs()], dim=1))
        return logits

    def _mean(self, sentences: Sequence[str]) -> Tensor:
        """The mean of each sentence's token vectors, special tokens included: [B, H]."""
        ids = [text.ids for text in self._tokenizer(sentences)]
        vectors = self._transformer.hidden_states(ids)[-1].float()  # [B, S, H]
        lengths = torch.tensor([[len(row)] for row in ids], device=self.device)  # [B, 1]
        mask = torch.arange(vectors.shape[1], device=self.device) < lengths  # [B, S]
        return (vectors * mask[:, :, None]).sum(dim=1) / lengths.clamp(min=1)


def finetune(
    backbone: str,
    corpus: NliCorpus,
    out: Path,
    settings: Settings,
    held_out: int = 0,
    notify: Callable[[str], None] = print,
) -> None:
    """Train a backbone on labelled pairs and write the result to `out` as a backbone.

    On a CPU, the result depends on the arguments alone.

    Args:
        backbone: source of the backbone, a transformer.
        corpus: the pairs.
        out: a directory that does not exist or is empty.
        settings: the hyperparameters.
        held_out: number of pairs at the end of the corpus to test on instead of training.
        notify: called with messages on the result.
    """
    if len(corpus.pairs) <= held_out:
        raise CorpusError(f"No pairs are left to train on, with {held_out:,} held out: {corpus}")
    end = len(corpus.pairs) - held_out
    with new_directory(out) as directory, open_backbone(backbone) as checkpoint:
        if checkpoint.is_static:
            raise BackboneError(
                f"{checkpoint.name} is a table of static vectors: only a transformer can be "
                "finetuned."
            )
        torch.manual_seed(settings.seed)
        model = PairClassifier(checkpoint)
        loss, accuracy = train(model, corpus.pairs[:end], settings)
        notify(f"Training loss {loss:.3f}, accuracy {accuracy:.1%} over the last steps.")
        if held_out:
            correct = measure(model, corpus.pairs[end:], settings.batch)
            notify(f"Accuracy on {held_out:,} held-out pairs: {correct:.1%}.")
        _write(model.encoder, checkpoint, directory)


def train(model: PairClassifier, pairs: Sequence[Pair], settings: Settings) -> tuple[float, float]:
    """Train the model; return the mean loss and accuracy over the last steps."""
    adam = torch.optim.Adam(model.parameters(), fused=True)  # ten times faster on a CPU
    steps = settings.epochs * -(-len(pairs) // settings.batch)
    recent: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # loss, accuracy
    loss = accuracy = 0.0
    model.train()
    with progress_bar("Finetuning", "steps", total=steps) as bar:
        for step, batch in enumerate(_batches(pairs, settings)):
            rate = settings.learning_rate * linear_warmup_decay(step, steps, _WARMUP)
            recent.append(_step(model, adam, batch, rate))
            loss, accuracy = (sum(values) / len(recent) for values in zip(*recent, strict=True))
            bar.set_postfix({"loss": f"{loss:.3f}", "acc": f"{accuracy:.1%}"}, refresh=False)
            bar.update()
    return loss, accuracy


def _batches(pairs: Sequence[Pair], settings: Settings) -> Iterator[list[Pair]]:
    """Yield batches in an order that depends on the seed and differs between epochs."""
    generator = torch.Generator().manual_seed(settings.seed)
    for _ in range(settings.epochs):
        order = torch.randperm(len(pairs), generator=generator)
        for indices in order.split(settings.batch):
            yield [pairs[index] for index in indices.tolist()]


def _step(
    model: PairClassifier, adam: torch.optim.Adam, batch: Sequence[Pair], rate: float
) -> tuple[float, float]:
    """Take one optimiser step; return the loss and the accuracy before it."""
    labels = torch.tensor([pair.label for pair in batch], device=model.device)
    logits = model(batch)
    loss = cross_entropy(logits, labels)
    if not torch.isfinite(loss):
        raise LatteMixError(f"The loss is {loss.item()}: lower --learning-rate.")
    for group in adam.param_groups:
        group["lr"] = rate
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.item(), (logits.argmax(dim=1) == labels).float().mean().item()


@torch.inference_mode()
def measure(model: PairClassifier, pairs: Sequence[Pair], batch: int) -> float:
    """The share of pairs that are classified correctly."""
    model.eval()
    correct = 0
    for start in range(0, len(pairs), batch):
        part = pairs[start : start + batch]
        predicted = model(part).argmax(dim=1).tolist()
        correct += sum(label == pair.label for label, pair in zip(predicted, part, strict=True))
    return correct / len(pairs)


def _write(encoder: Any, checkpoint: Checkpoint, directory: Path) -> None:
    """Write the encoder with the config and the tokenizer of its source.

    Parameters that are neither trained nor in the source are left out: transformers adds a random
    pooler to a BERT that has none.
    """
    source = set()
    for file in weight_files(checkpoint.directory):
        with safe_open(file, framework="pt") as tensors:
            source |= {n.removeprefix(f"{encoder.base_model_prefix}.") for n in tensors.keys()}  # noqa: SIM118
    weights = {
        name: parameter.detach().cpu().contiguous()
        for name, parameter in encoder.named_parameters()
        if parameter.grad is not None or name in source
    }
    save_file(weights, directory / SAFETENSORS, metadata={"format": "pt"})
    for name in (CONFIG, TOKENIZER):
        shutil.copyfile(checkpoint.directory / name, directory / name)
