"""A frozen Hugging Face encoder: sentences in, the token vectors of one layer out."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import AutoModel
from transformers.utils import logging

from app.engine.tokenization import Tokenizer
from training.backbones.sources import BackboneError, Checkpoint

_BATCH = 64

# Loading reports tensors a frozen encoder does not use; ours is the progress worth showing.
logging.set_verbosity_error()
logging.disable_progress_bar()


class Transformer:
    """The reference the exported graph is checked against, and what heads are trained on."""

    def __init__(self, checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
        checkpoint.check_length(max_tokens)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.model = AutoModel.from_pretrained(
                checkpoint.directory,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,  # unset, transformers would ask, and take "y" for consent
                dtype=torch.float32,
            )
        except Exception as error:  # a damaged file, an unknown family: they share no base
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BackboneError(f"{checkpoint.name} cannot be loaded: {reason}") from error
        self.model.eval().requires_grad_(False).to(self.device)
        depth = self.model.config.num_hidden_layers
        self.layer = depth if layer is None else layer
        if self.layer > depth:
            raise BackboneError(
                f"{checkpoint.name} has {depth} layers, so layer {layer} is none of them."
            )
        self.hidden_size: int = self.model.config.hidden_size
        self.tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)

    @torch.inference_mode()
    def token_vectors(self, sentences: Sequence[str], progress: bool = False) -> Iterator[Tensor]:
        """Yield each sentence's token vectors [S, H], special tokens included, in order."""
        tokens = [text.ids for text in self.tokenizer(sentences)]
        # Similar lengths together waste the least padding; the answers go back in order.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        vectors: dict[int, Tensor] = {}
        starts = range(0, len(order), _BATCH)
        for start in tqdm(starts, desc="Encoding", unit="batch", disable=not progress):
            batch = order[start : start + _BATCH]
            for index, states in zip(batch, self._run([tokens[i] for i in batch]), strict=True):
                vectors[index] = states
        yield from (vectors.pop(i) for i in range(len(tokens)))

    def _run(self, batch: list[list[int]]) -> Iterator[Tensor]:
        ids = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)  # [B, S]
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        output = self.model(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            output_hidden_states=True,
        )
        states = output.hidden_states[self.layer].cpu()  # [B, S, H]
        for row, tokens in enumerate(batch):
            yield states[row, : len(tokens)]
