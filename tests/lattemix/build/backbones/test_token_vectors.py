import numpy as np
import pytest

from lattemix.build.backbones import TokenVectors


@pytest.fixture
def tokens() -> TokenVectors:
    ids = np.array([5, 9, 5, 7, 9, 8], np.int32)
    vectors = ids[:, None].astype(np.float32)
    return TokenVectors(vectors, ids, np.array([2, 0, 3, 1], np.int32), truncated=1)


def sentences(tokens: TokenVectors) -> list[list[int]]:
    return [vectors[:, 0].tolist() for vectors in tokens]


def test_iterates_over_sentences(tokens: TokenVectors) -> None:
    assert len(tokens) == 4
    assert sentences(tokens) == [[5, 9], [], [5, 7, 9], [8]]
    assert tokens.sentence_of.tolist() == [0, 0, 2, 2, 2, 3]


def test_takes_sentences_in_the_given_order(tokens: TokenVectors) -> None:
    assert sentences(tokens.take([3, 0])) == [[8], [5, 9]]
    assert len(tokens.take([])) == 0


def test_removes_a_token(tokens: TokenVectors) -> None:
    assert sentences(tokens.without([9])) == [[5], [], [5, 7], [8]]
    assert tokens.without([9]).truncated == 1
    assert sentences(tokens.without([9, 5])) == [[], [], [7], [8]]
    assert tokens.without([]) is tokens


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_joined_chunks_are_the_original(tokens: TokenVectors, size: int) -> None:
    chunks = list(tokens.chunks(size))
    assert [len(chunk) for chunk in chunks] == [min(size, 4 - i) for i in range(0, 4, size)]
    joined = TokenVectors.join(chunks)
    np.testing.assert_array_equal(joined.ids, tokens.ids)
    assert sentences(joined) == sentences(tokens)
    assert TokenVectors.join([tokens, tokens]).truncated == 2
