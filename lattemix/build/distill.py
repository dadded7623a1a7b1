"""Distillation: a transformer's vector of every token, read alone, as a static backbone."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
import tokenizers
from numpy.typing import NDArray

from lattemix.build.backbones import BackboneError, Checkpoint, open_backbone, words
from lattemix.build.families import Architecture
from lattemix.build.graph import Graph
from lattemix.build.network import check_exportable, complete, read_transformer, to_model
from lattemix.build.transformer import hidden_states
from lattemix.session import usable_cores
from model_store.manifest import BackboneOrigin

TOKEN = "{token}"  # the place of the token in a template
_BATCH_TOKENS = 384  # per run: larger batches do not fit the processor's cache


class _Frame(NamedTuple):
    """The ids around each token."""

    before: list[int]
    after: list[int]

    @property
    def length(self) -> int:
        return len(self.before) + 1 + len(self.after)


@contextmanager
def open_origin(
    origin: BackboneOrigin,
    backbone: str | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Iterator[Checkpoint]:
    """Yield the backbone that a head was trained on, distilled if the origin has a template.

    Args:
        origin: the backbone as the head records it.
        backbone: where to find it; default: by the name in `origin`. It may be distilled already.
        tell: called with a progress message before each step.
    """
    source = backbone or origin.name
    tell(f"Opening the backbone {source}")
    with open_backbone(source) as checkpoint:
        checkpoint.check_digest(origin)
        if origin.template is None or checkpoint.is_static:
            yield checkpoint
        else:
            with distilled(checkpoint, origin.layer, origin.template, tell) as table:
                yield table


@contextmanager
def distilled(
    checkpoint: Checkpoint,
    layer: int | None,
    template: str,
    tell: Callable[[str], None] = lambda message: None,
) -> Iterator[Checkpoint]:
    """Yield a transformer's table of token vectors, in a temporary directory; see `distill`."""
    tell(f"Distilling {checkpoint.name}")
    with TemporaryDirectory(prefix="lattemix-") as temporary:
        distill(checkpoint, Path(temporary), layer, template)
        yield Checkpoint.read(Path(temporary), checkpoint.name)


def distill(
    checkpoint: Checkpoint, directory: Path, layer: int | None = None, template: str = TOKEN
) -> None:
    """Write a table of a transformer's token vectors as a static backbone directory.

    Each token of the vocabulary is run in the template, between the tokenizer's special tokens, and
    its own vector is read. Special and unknown tokens get rows of zeros.

    Args:
        checkpoint: the transformer.
        directory: an empty or a new directory.
        layer: the hidden layer to read; default: the last.
        template: a text with `{token}` in the place of the token.
    """
    if checkpoint.is_static:
        raise BackboneError(f"{checkpoint.name} is a table of token vectors already.")
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise BackboneError(f"{directory} exists: choose another directory for the table.")
    check_exportable(checkpoint)
    tokenizer = _read_tokenizer(checkpoint)
    frame = _frame(checkpoint, tokenizer, template)
    with complete(checkpoint):
        model = read_transformer(checkpoint)
        layer = model.layers if layer is None else layer
        if not 0 <= layer <= model.layers:
            raise BackboneError(
                f"{checkpoint.name} has {model.layers} layers, so there is no layer {layer}."
            )
        usable = _usable_ids(checkpoint, tokenizer, model)
        session = _session(model, layer, frame)
    table = np.zeros((tokenizer.get_vocab_size(), model.width), np.float32)  # [V, H]
    table[usable] = _vectors(session, usable, frame)
    if not np.isfinite(table).all():
        raise BackboneError(
            f"{checkpoint.name} gives vectors that are not finite at layer {layer}."
        )
    source = checkpoint.origin(layer, model.width).model_copy(update={"template": template})
    words.write(
        table,
        _without_special_tokens(tokenizer),
        directory,
        ignored_ids=np.setdiff1d(np.arange(len(table)), usable).tolist(),
        source=source.model_dump(exclude={"hidden_size"}),
    )


def _read_tokenizer(checkpoint: Checkpoint) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer))
    except Exception as error:  # Rust errors have no class of their own
        raise BackboneError(f"{checkpoint.tokenizer} is not a tokenizer: {error}.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _frame(checkpoint: Checkpoint, tokenizer: tokenizers.Tokenizer, template: str) -> _Frame:
    """The template's tokens and the special tokens around them."""
    if template.count(TOKEN) != 1:
        raise BackboneError(f"The template {template!r} must contain {TOKEN} once.")
    prefix, suffix = template.split(TOKEN)
    text = tokenizer.encode("a")
    special = text.special_tokens_mask
    first = special.index(0) if 0 in special else len(special)
    last = len(special) - special[::-1].index(0) if 0 in special else len(special)
    # Without the space before the token: it would be a token of its own in some vocabularies.
    before = tokenizer.encode(prefix.rstrip(), add_special_tokens=False).ids
    after = tokenizer.encode(suffix, add_special_tokens=False).ids
    frame = _Frame([*text.ids[:first], *before], [*after, *text.ids[last:]])
    if checkpoint.positions is not None and frame.length > checkpoint.positions:
        raise BackboneError(
            f"The template has {frame.length} tokens, special tokens included, but "
            f"{checkpoint.name} has {checkpoint.positions} positions: shorten it."
        )
    return frame


def _usable_ids(
    checkpoint: Checkpoint, tokenizer: tokenizers.Tokenizer, model: Architecture
) -> NDArray[np.int64]:
    """The ids of all tokens that are not special and that the transformer has a vector of."""
    vocabulary, size = tokenizer.get_vocab(), tokenizer.get_vocab_size()
    if max(vocabulary.values(), default=0) >= size:
        raise BackboneError(
            f"{checkpoint.name} has {size:,} tokens, but ids up to {max(vocabulary.values()):,}: "
            "only ids without gaps can be distilled."
        )
    kind = json.loads(tokenizer.to_str())["model"]
    unknown = vocabulary.get(kind.get("unk_token"), kind.get("unk_id"))
    added = tokenizer.get_added_tokens_decoder()
    special: set[int | None] = {id_ for id_, token in added.items() if token.special}
    special |= {*tokenizer.encode("").ids, unknown, checkpoint.config.get("pad_token_id")}
    rows = len(model.weight("embeddings.word_embeddings.weight", -1, model.width))
    usable = [id_ for id_ in sorted({*vocabulary.values()}) if id_ < rows and id_ not in special]
    if not usable:
        raise BackboneError(f"{checkpoint.name} has only special tokens: none can be distilled.")
    return np.array(usable)


def _session(model: Architecture, layer: int, frame: _Frame) -> ort.InferenceSession:
    """The graph from ids [B, S] to the vectors [B, 1, H] of the tokens in the frame."""
    graph = Graph()
    states = hidden_states(graph, model, layer, frame.length)  # [B, S, H]
    position = graph.constant("position", np.array([len(frame.before)]))
    vectors = graph.op("Gather", states, position, axis=1)
    proto = to_model(graph, vectors, "vectors", ["B", 1, model.width])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # `_vectors` runs a batch per core
    serialized = proto.SerializeToString()
    return ort.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])


def _vectors(
    session: ort.InferenceSession, tokens: NDArray[np.int64], frame: _Frame
) -> NDArray[np.float32]:
    """The vector of each token in the frame: [T] -> [T, H]."""
    ids = np.tile(np.array([*frame.before, 0, *frame.after]), (len(tokens), 1))  # [T, S]
    ids[:, len(frame.before)] = tokens
    size = max(1, _BATCH_TOKENS // frame.length)

    def run(batch: NDArray[np.int64]) -> NDArray[np.float32]:
        feeds = {"input_ids": batch, "attention_mask": np.ones_like(batch)}
        vectors: NDArray[np.float32] = session.run(None, feeds)[0][:, 0]
        return vectors

    with ThreadPoolExecutor(usable_cores()) as executor:
        batches = [ids[start : start + size] for start in range(0, len(ids), size)]
        return np.concatenate([*executor.map(run, batches)])


def _without_special_tokens(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer, adding no special tokens to a text."""
    content = json.loads(tokenizer.to_str()) | {"post_processor": None}
    return tokenizers.Tokenizer.from_str(json.dumps(content))
