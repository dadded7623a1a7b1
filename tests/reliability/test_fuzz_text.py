"""Any text at all: it is tokenized and encoded, or refused in a sentence."""

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
from lattemix.tokenization import Side, Tokenizer, slices
from tests.conftest import SENTENCES

LIMIT = 12
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
KINDS = ["words", "wordpiece", "bytes", "metaspace"]

# What has broken tokenizers before: joined emoji, marks without a letter, letters that become
# several, right to left, controls, blanks of every kind, and the tokenizer's own tokens.
TROUBLE = [
    "👩‍👩‍👧‍👦", "🏳️‍🌈", "\u0301", "e\u0301\u0327", "ﬃ", "İ", "ß", "각", "שלום", "\u202eabc\u202c",
    "\u0000", "\u0007", "\ufeff", "\u200b", "\u00a0", "\u2028", "\u3000", "\U0010ffff", "ﷺ",
    "中文", "[CLS]", "[SEP]", "##a", "▁", "Ġ", "x" * 300,
]  # fmt: skip
characters = st.characters(exclude_categories=["Cs"])
fragments = st.one_of(
    st.text(characters, max_size=20),
    st.sampled_from(TROUBLE),
    st.sampled_from(SENTENCES),
    st.text(" \t\r\n", min_size=1, max_size=5),
)
texts = st.lists(fragments, max_size=8).map("".join)
sides: st.SearchStrategy[Side] = st.sampled_from(["left", "right"])
kinds = pytest.mark.parametrize("kind", KINDS)


def _definition(kind: str) -> tokenizers.Tokenizer:
    """One tokenizer of each sort that backbones come with, trained on the tests' sentences."""
    if kind == "bytes":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet)
    elif kind == "metaspace":
        made = tokenizers.Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(special_tokens=SPECIAL, unk_token="[UNK]")
    else:
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=SPECIAL)
    trainer.show_progress = False
    made.train_from_iterator(SENTENCES, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


@pytest.fixture(scope="session")
def tokenizer_of(backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    directory = tmp_path_factory.mktemp("tokenizers")
    for kind in KINDS[1:]:
        _definition(kind).save(str(directory / f"{kind}.json"))
    (directory / "words.json").write_bytes((backbone / "tokenizer.json").read_bytes())
    return {kind: Tokenizer(directory / f"{kind}.json", LIMIT) for kind in KINDS}


@kinds
@given(text=texts, cut=sides)
def test_a_text_is_parsed_as_it_is_read(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, cut: Side
) -> None:
    tokenizer = tokenizer_of[kind]
    parsed, (alone,) = tokenizer.parse(text, cut), tokenizer([text], cut)
    assert parsed.tokens == alone._replace(each=True)
    assert len(parsed.spans) == len(alone.ids) <= LIMIT
    assert alone.truncated == (alone.total > LIMIT)
    assert (alone.ids[0], alone.ids[-1]) == (2, 3)
    assert [piece.special for piece in parsed.spans[1:-1]] == [False] * (len(alone.ids) - 2)
    assert alone.empty == (alone.total == 2)


@kinds
@given(text=texts, cut=sides)
def test_tokens_stand_in_their_text_in_order(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, cut: Side
) -> None:
    pieces = tokenizer_of[kind].parse(text, cut).spans[1:-1]
    for piece in pieces:
        assert 0 <= piece.start <= piece.end <= len(text)
        span = text[piece.start : piece.end]
        assert span == span.strip()
    starts = [piece.start for piece in pieces]
    assert starts == sorted(starts)
    found = words(pieces)
    assert [place for word in found for place in word.tokens] == list(range(len(pieces)))
    assert all(0 <= word.start <= word.end <= len(text) for word in found)


@kinds
@given(text=texts)
def test_either_cut_leaves_an_end_of_the_whole(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = tokenizer_of[kind]
    whole = tokenizer._tokenizer.encode(text).ids[1:-1]
    (first,), (last,) = tokenizer([text], "right"), tokenizer([text], "left")
    assert first.total == last.total == len(whole) + 2
    assert first.ids[1:-1] == whole[: LIMIT - 2]
    assert last.ids[1:-1] == whole[-(LIMIT - 2) :]


@kinds
@given(batch=st.lists(texts, min_size=5, max_size=9))
def test_many_texts_are_read_as_each_alone(
    tokenizer_of: dict[str, Tokenizer], kind: str, batch: list[str]
) -> None:
    tokenizer = tokenizer_of[kind]
    assert tokenizer(batch) == [tokenizer([text])[0] for text in batch]


@kinds
@given(text=st.text(st.characters(exclude_categories=[]), max_size=20), count=st.integers(1, 6))
def test_only_half_a_surrogate_pair_is_no_text(
    tokenizer_of: dict[str, Tokenizer], kind: str, text: str, count: int
) -> None:
    if any(unicodedata.category(character) == "Cs" for character in text):
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer_of[kind]([text] * count)
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer_of[kind].parse(text)
    else:
        assert len(tokenizer_of[kind]([text] * count)) == count


@given(batch=st.lists(texts, max_size=12), most=st.integers(0, 100))
def test_slices_are_the_texts_in_order(batch: list[str], most: int) -> None:
    parts = list(slices(batch, most))
    assert [text for part in parts for text in part] == batch
    assert all(len(part) == 1 or sum(map(len, part)) <= most for part in parts)


def readable(encoder: Encoder, batch: list[str]) -> list[str]:
    """Those that are not empty to the model; it must name exactly the others."""
    kept = [text for text in batch if not encoder._tokenizer([text])[0].empty]
    if len(kept) < len(batch):
        with pytest.raises(EmptyTextError) as caught:
            encoder.encode(batch)
        places = {caught.value.index, *caught.value.others}
        assert {batch[place] for place in places} == set(batch) - set(kept)
    return kept


@given(batch=st.lists(texts, max_size=6), seed=st.randoms(use_true_random=False))
def test_a_mixture_does_not_depend_on_its_company(
    encoder: Encoder, batch: list[str], seed: object
) -> None:
    kept = readable(encoder, batch)
    together = encoder.encode(kept)
    assert together.mixtures.shape == (len(kept), 4, 5)
    assert (together.mixtures >= 0).all()
    np.testing.assert_allclose(together.mixtures.sum(axis=-1), 1, atol=1e-5)
    order = list(range(len(kept)))
    seed.shuffle(order)  # type: ignore[attr-defined]
    shuffled = encoder.encode([kept[place] for place in order])
    np.testing.assert_allclose(shuffled.mixtures, together.mixtures[order], rtol=0, atol=1e-6)
    assert shuffled.truncated == [together.truncated[place] for place in order]
    for place, text in enumerate(kept):
        alone = encoder.encode([text]).mixtures[0]
        np.testing.assert_allclose(alone, together.mixtures[place], rtol=0, atol=1e-6)


@given(text=texts, cut=sides)
def test_a_mixture_is_that_of_its_tokens_by_weight(encoder: Encoder, text: str, cut: Side) -> None:
    if not readable(encoder, [text]):
        return
    (parsed,), (tokens,) = encoder.parse([text], cut), encoder.tokenize([text], cut)
    each, whole = encoder.run([parsed.tokens])[0], encoder.run([tokens])[0]  # [S, L, C], [L, C]
    weights = encoder.weights(tokens)
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(each.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(np.tensordot(weights, each, 1), whole, rtol=0, atol=1e-6)
