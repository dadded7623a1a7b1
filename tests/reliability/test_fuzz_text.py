"""Arbitrary texts: they are tokenized and encoded, or rejected with an error message."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, TextError
from lattemix.explain import words
from lattemix.settings import Truncate
from lattemix.tokenization import Tokenizer, slices
from tests.tiny import SENTENCES

LIMIT = 12
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
KINDS = ["words", "wordpiece", "bytes", "metaspace"]

# Inputs that have broken tokenizers: joined emoji, marks without a letter, letters that become
# several, right-to-left text, control characters, white space, and special tokens.
HARD_INPUTS = [
    "👩‍👩‍👧‍👦", "🏳️‍🌈", "\u0301", "e\u0301\u0327", "ﬃ", "İ", "ß", "각", "שלום", "\u202eabc\u202c",
    "\u0000", "\u0007", "\ufeff", "\u200b", "\u00a0", "\u2028", "\u3000", "\U0010ffff", "ﷺ",
    "中文", "[CLS]", "[SEP]", "##a", "▁", "Ġ", "x" * 300,
]  # fmt: skip
characters = st.characters(exclude_categories=["Cs"])
fragments = st.one_of(
    st.text(characters, max_size=20),
    st.sampled_from(HARD_INPUTS),
    st.sampled_from(SENTENCES),
    st.text(" \t\r\n", min_size=1, max_size=5),
)
texts = st.lists(fragments, max_size=8).map("".join)
sides: st.SearchStrategy[Truncate] = st.sampled_from(["left", "right"])
kinds = pytest.mark.parametrize("kind", KINDS)


def _train(kind: str) -> tokenizers.Tokenizer:
    """Train one tokenizer of each kind that backbones use."""
    if kind == "bytes":
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet)
    elif kind == "metaspace":
        tokenizer = tokenizers.Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(special_tokens=SPECIAL, unk_token="[UNK]")
    else:
        tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=SPECIAL)
    trainer.show_progress = False
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer_of(backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    directory = tmp_path_factory.mktemp("tokenizers")
    for kind in KINDS[1:]:
        _train(kind).save(str(directory / f"{kind}.json"))
    (directory / "words.json").write_bytes((backbone / "tokenizer.json").read_bytes())
    return {kind: Tokenizer(directory / f"{kind}.json", LIMIT) for kind in KINDS}


@kinds
@given(text=texts, side=sides)
def test_parsing_gives_the_same_tokens_as_tokenizing(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, side: Truncate
) -> None:
    tokenizer = tokenizer_of[kind]
    parsed, (alone,) = tokenizer.parse(text, side), tokenizer([text], side)
    assert parsed.tokens == alone._replace(per_token=True)
    assert len(parsed.spans) == len(alone.ids) <= LIMIT
    assert alone.truncated == (alone.total > LIMIT)
    assert (alone.ids[0], alone.ids[-1]) == (2, 3)
    assert [span.special for span in parsed.spans[1:-1]] == [False] * (len(alone.ids) - 2)
    assert alone.empty == (alone.total == 2)


@kinds
@given(text=texts, side=sides)
def test_token_offsets_are_ordered_and_within_the_text(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, side: Truncate
) -> None:
    spans = tokenizer_of[kind].parse(text, side).spans[1:-1]
    for span in spans:
        assert 0 <= span.start <= span.end <= len(text)
        surface = text[span.start : span.end]
        assert surface == surface.strip()
    starts = [span.start for span in spans]
    assert starts == sorted(starts)
    grouped = words(spans)
    assert [token for word in grouped for token in word.tokens] == list(range(len(spans)))
    assert all(0 <= word.start <= word.end <= len(text) for word in grouped)


@kinds
@given(text=texts)
def test_truncation_keeps_the_start_or_the_end(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = tokenizer_of[kind]
    ids = tokenizer._tokenizer.encode(text).ids[1:-1]
    (first,), (last,) = tokenizer([text], "right"), tokenizer([text], "left")
    assert first.total == last.total == len(ids) + 2
    assert first.ids[1:-1] == ids[: LIMIT - 2]
    assert last.ids[1:-1] == ids[-(LIMIT - 2) :]


@kinds
@given(batch=st.lists(texts, min_size=5, max_size=9))
def test_batch_tokenization_equals_single_tokenization(
    tokenizer_of: dict[str, Tokenizer], kind: str, batch: list[str]
) -> None:
    tokenizer = tokenizer_of[kind]
    assert tokenizer(batch) == [tokenizer([text])[0] for text in batch]


@kinds
@given(text=st.text(st.characters(exclude_categories=[]), max_size=20), count=st.integers(1, 6))
def test_rejects_only_lone_surrogates(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, count: int
) -> None:
    if any(unicodedata.category(character) == "Cs" for character in text):
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer_of[kind]([text] * count)
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer_of[kind].parse(text)
    else:
        assert len(tokenizer_of[kind]([text] * count)) == count


@given(batch=st.lists(texts, max_size=12), limit=st.integers(0, 100))
def test_slices_keep_the_order_of_texts(batch: list[str], limit: int) -> None:
    parts = list(slices(batch, limit))
    assert [text for part in parts for text in part] == batch
    assert all(len(part) == 1 or sum(map(len, part)) <= limit for part in parts)


def non_empty(encoder: Encoder, batch: list[str]) -> list[str]:
    """Return the texts with tokens, after checking that the model rejects exactly the others."""
    texts = [text for text in batch if not encoder.tokenizer([text])[0].empty]
    if len(texts) < len(batch):
        with pytest.raises(EmptyTextError) as caught:
            encoder.encode(batch)
        indices = {caught.value.index, *caught.value.others}
        assert {batch[i] for i in indices} == set(batch) - set(texts)
    return texts


@given(batch=st.lists(texts, max_size=6), seed=st.randoms(use_true_random=False))
def test_mixture_does_not_depend_on_its_batch(
    encoder: Encoder, batch: list[str], seed: object
) -> None:
    texts = non_empty(encoder, batch)
    together = encoder.encode(texts)
    assert together.mixtures.shape == (len(texts), 4, 5)
    assert (together.mixtures >= 0).all()
    np.testing.assert_allclose(together.mixtures.sum(axis=-1), 1, atol=1e-5)
    order = list(range(len(texts)))
    seed.shuffle(order)  # type: ignore[attr-defined]
    shuffled = encoder.encode([texts[i] for i in order])
    np.testing.assert_allclose(shuffled.mixtures, together.mixtures[order], rtol=0, atol=1e-6)
    assert shuffled.truncated == [together.truncated[i] for i in order]
    for i, text in enumerate(texts):
        alone = encoder.encode([text]).mixtures[0]
        np.testing.assert_allclose(alone, together.mixtures[i], rtol=0, atol=1e-6)


@given(text=texts, side=sides)
def test_mixture_is_the_weighted_average_of_its_tokens(
    encoder: Encoder, text: str, side: Truncate
) -> None:
    if not non_empty(encoder, [text]):
        return
    (parsed,), (tokens,) = encoder.parse([text], side), encoder.tokenize([text], side)
    per_token, mixture = (
        encoder.run([parsed.tokens])[0],
        encoder.run([tokens])[0],
    )  # [S, L, C], [L, C]
    weights = encoder.weights(tokens)
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(per_token.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(np.tensordot(weights, per_token, 1), mixture, rtol=0, atol=1e-6)
