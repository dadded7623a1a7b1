"""Mixtures of a static model, which averages rows of a table: many texts at once, of any length."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.errors import EmptyTextError, NonFiniteError
from lattemix.session import Session
from lattemix.tokenization import Tokenizer, slices

# Tokens per run, padding included: their distributions should stay in the processor's cache. A
# longer text is computed in pieces of this many tokens, whose mixtures add up to the text's.
_RUN_TOKENS = 1024
# Runs are padded to a multiple of this length: the processor adds tokens in groups of up to four,
# and a group must not depend on the length of the run.
LENGTH_MULTIPLE = 4
_SLICE_CHARACTERS = 32_768  # encoded by one thread while others encode other slices


class TokenizedTexts(NamedTuple):
    """The tokens of several texts, one text after the other."""

    ids: NDArray[np.int64]  # [T]
    lengths: NDArray[np.int64]  # [N], none 0; they sum to T
    shares: NDArray[np.float32]  # [T], each token's share of its text's mixture


class StaticModel:
    """A static model: tokenizer, table and token weights. Thread-safe.

    A text's mixture is the same, bit for bit, whatever texts it is encoded with.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        session: Session,
        weights: NDArray[np.float32] | None,
        latent_shape: tuple[int, int],
    ) -> None:
        """Combine the parts.

        Args:
            tokenizer: without a maximum length.
            session: the graph.
            weights: weight of each token id [V]; None is all 1.
            latent_shape: (L, C).
        """
        self._tokenizer = tokenizer
        self._session = session
        self._weights = weights
        self._latent_shape = latent_shape

    def encode(
        self, texts: Sequence[str], threads: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the mixtures [N, L, C] and the token counts [N] of texts.

        Raises:
            EmptyTextError: the model finds no words in some texts.
        """
        mixtures = np.empty((len(texts), *self._latent_shape), np.float32)
        lengths = np.empty(len(texts), np.int64)
        parts = list(slices(texts, _SLICE_CHARACTERS))
        starts = np.cumsum([0, *map(len, parts)]).tolist()

        def encode_part(start: int, part: list[str]) -> list[int]:
            """Write the part's results; return the indices of empty texts."""
            rows = slice(start, start + len(part))
            try:
                tokens = self.tokenize(part)
            except EmptyTextError as error:
                return [start + index for index in (error.index, *error.others)]
            lengths[rows] = tokens.lengths
            self.mixtures(tokens, out=mixtures[rows])
            return []

        if len(parts) > 1:
            with ThreadPoolExecutor(threads) as executor:
                empty = list(chain.from_iterable(executor.map(encode_part, starts, parts)))
        else:
            empty = encode_part(0, parts[0]) if parts else []
        if empty:
            raise EmptyTextError(*empty)
        return mixtures, lengths

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """Tokenize texts.

        Raises:
            EmptyTextError: some texts have no tokens, or only tokens of weight 0.
        """
        rows = self._tokenizer.ids(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
        weights = np.ones(len(ids), np.float32) if self._weights is None else self._weights[ids]
        totals = sums(weights, lengths)  # [N]
        empty = np.flatnonzero((lengths <= self._tokenizer.special_tokens) | (totals == 0))
        if empty.size:
            raise EmptyTextError(*empty.tolist())
        divisors: NDArray[np.float32] = np.repeat(totals, lengths)  # [T]
        return TokenizedTexts(ids, lengths, weights / divisors)

    def mixtures(
        self, tokens: TokenizedTexts, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the mixtures [N, L, C] of texts, in `out` if it is given."""
        ids, lengths, shares = tokens
        out = np.empty((len(lengths), *self._latent_shape), np.float32) if out is None else out
        starts = np.cumsum(lengths) - lengths
        longest_first = np.argsort(-lengths, kind="stable")
        done = 0
        while done < len(lengths):
            longest = int(lengths[longest_first[done]])
            padded = round_up(longest, LENGTH_MULTIPLE)
            rows = longest_first[done : done + max(1, _RUN_TOKENS // padded)]
            if longest > _RUN_TOKENS:
                (row,) = rows
                text = slice(starts[row], starts[row] + longest)
                out[row] = self._sum_of_pieces(ids[text], shares[text])
            else:
                offsets = np.arange(padded)
                padding = offsets >= lengths[rows, None]  # [B, S]
                # Padding has the tokens that follow, with a share of 0.
                positions = np.minimum(starts[rows, None] + offsets, len(ids) - 1)
                out[rows] = self._run(ids[positions], np.where(padding, 0, shares[positions]))
            done += len(rows)
        return out

    def _sum_of_pieces(
        self, ids: NDArray[np.int64], shares: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Mixture [L, C] of one long text: [T], [T]."""
        mixture = np.zeros(self._latent_shape, np.float32)
        for start in range(0, len(ids), _RUN_TOKENS):
            piece = slice(start, start + _RUN_TOKENS)
            mixture += self._run(ids[None, piece], shares[None, piece])[0]
        return mixture

    def _run(self, ids: NDArray[np.int64], shares: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sums [B, L, C] of the tokens' distributions, by share: [B, S], [B, S]."""
        mixtures = self._session.run(ids, np.ones_like(ids), shares[:, None, :])[:, 0]
        if not np.isfinite(mixtures).all():
            raise NonFiniteError
        return mixtures


def round_up(length: int, multiple: int) -> int:
    """Return the smallest multiple that is not below the length."""
    return -(-length // multiple) * multiple


def sums(weights: NDArray[np.float32], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the sums [N] of rows of weights [T], one row after the other.

    Each is added from left to right, so that it does not depend on the row's position.
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(rows, weights, minlength=len(lengths)).astype(np.float32)
