"""The path of a request's texts to the model and back, without blocking the event loop."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.engine.batcher import Batcher
from app.engine.cache import Cache, TextInfo, cache_key
from app.engine.errors import UnavailableError
from app.engine.host import Host
from app.engine.queue import Queue, Sentence
from app.observe import ModelMetrics, Trace
from lattemix.encoder import Encoder
from lattemix.encodings import Encoding, TokenEncoding, add_windows
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.settings import Truncate
from lattemix.tokenization import Tokens, slices

T = TypeVar("T")

_RECENT_SECONDS = 5.0  # a batch that succeeded this recently shows that the model works
_TIMEOUT_SECONDS = 5.0  # of a readiness probe, and of the last batches at shutdown
_SLICE_CHARACTERS = 100_000  # tokenized at once
_CHARACTERS_PER_SECOND = 3e6  # estimated speed of tokenization
# Up to these sizes, work on the event loop takes less time than a round trip to a thread.
_INLINE_CHARACTERS = 500
_INLINE_COPIES = 64  # mixtures read from the cache, or written to it


class _Text(NamedTuple):
    """A tokenized text: one window, or several if it is over the maximum length."""

    info: TextInfo
    windows: list[Tokens]


class Engine:
    """Encodes texts of concurrent requests with one model: cache, tokenization, batching."""

    def __init__(
        self,
        encoder: Encoder,
        host: Host,
        cache_bytes: int = 0,
        metrics: ModelMetrics | None = None,
    ) -> None:
        self.encoder = encoder
        self.host = host
        self._shape = (encoder.manifest.latent_dims, encoder.manifest.classes)
        self.cache = Cache(cache_bytes, *self._shape)
        self.batcher = Batcher(encoder, metrics)
        self._characters = 0  # not tokenized yet
        # Not the host's threads: tokenization does not wait for large responses.
        # A static model also computes here.
        threads = encoder.parallel if encoder.static is not None else 1
        self._tokenizer_pool = ThreadPoolExecutor(threads, thread_name_prefix="lattemix-tokens")
        host.backlogs.add(self)

    @property
    def queue(self) -> Queue:
        """Sentences queued for the model."""
        return self.batcher.queue

    @property
    def stopped(self) -> bool:
        """Whether the engine has stopped computing."""
        return self.batcher.stopped

    async def encode(
        self, texts: Sequence[str], trace: Trace, truncate: Truncate = "window"
    ) -> Encoding:
        """Return the mixture of every text, in order, and fill in the trace.

        After cancellation, sentences that no other request waits for are not computed.

        Args:
            texts: the texts.
            trace: the request's measurements.
            truncate: how to handle texts over the maximum length.

        Raises:
            EmptyTextError: the first text without words.
            TooLongError: the first text that is too long for "error" or "window".
            OverloadedError: a limit on work in progress is reached.
            InferenceError: the model failed.
            UnavailableError: the service is stopping.
        """
        start = time.perf_counter()
        self.host.admit_sentences(len(texts), trace)
        if self.encoder.static is not None:
            return await self._encode_static(texts, trace, start)
        keys = [cache_key(text, truncate) for text in texts]
        mixtures = np.zeros((len(texts), *self._shape), np.float32)
        cached = await self._read_cache(keys, mixtures)
        misses = [index for index, info in enumerate(cached) if info is None]
        split = partial(self._split, truncate=truncate)
        computed = await self._tokenize(split, texts, misses) if misses else []
        for index, text in zip(misses, computed, strict=True):
            cached[index] = text.info
        infos = [info for info in cached if info is not None]  # all of them by now
        trace.cached += len(texts) - len(misses)
        self._record_texts(infos, trace, start)
        if misses:
            windows = [window for text in computed for window in text.windows]
            if len(windows) > len(misses):
                self.host.admit_sentences(len(windows) - len(misses), trace)
            sentences = await self._run_model(windows, trace)

            def collect() -> None:
                parts = (
                    (index, share)
                    for index, text in zip(misses, computed, strict=True)
                    for share in self.encoder.window_shares(text.windows)
                )
                add_windows(mixtures, parts, (sentence.mixture for sentence in sentences))
                self.cache.write((keys[i], mixtures[i], infos[i]) for i in misses)

            if len(windows) <= _INLINE_COPIES:
                collect()
            else:
                await self.host.off_loop(collect)
        return Encoding(
            mixtures, [info.tokens for info in infos], [info.truncated for info in infos]
        )

    def _split(self, texts: Sequence[str], truncate: Truncate) -> list[_Text]:
        """Tokenize texts and split long ones into windows."""
        return [
            _Text(TextInfo(text.total, text.truncated), self.encoder.windows(text))
            for text in self.encoder.tokenize(texts, truncate)
        ]

    async def _encode_static(self, texts: Sequence[str], trace: Trace, start: float) -> Encoding:
        """Encode the texts of one request, apart from those of others."""
        parts = await self._tokenize(self.batcher.encode_static, texts, range(len(texts)))
        for part in parts:
            trace.tokenization += part.tokenization
            trace.inference += part.inference
            trace.tokens += int(part.lengths.sum())
        trace.sentences += len(texts)
        elapsed = time.perf_counter() - start
        trace.queue += max(0.0, elapsed - trace.tokenization - trace.inference)
        mixtures = [part.mixtures for part in parts]
        return Encoding(
            np.concatenate(mixtures) if len(mixtures) > 1 else mixtures[0],
            [length for part in parts for length in part.lengths.tolist()],
            [False] * len(texts),
        )

    async def encode_tokens(
        self, texts: Sequence[str], trace: Trace, truncate: Truncate = "right"
    ) -> list[TokenEncoding]:
        """Return the mixture of every token of every text; otherwise like `encode`.

        There is one run per text, so "window" truncates like "right".

        Not cached: the mixtures of all tokens are large, and few are requested twice.
        """
        start = time.perf_counter()
        self.host.admit_sentences(len(texts), trace)
        parse = partial(self.encoder.parse, truncate=truncate)
        parsed = await self._tokenize(parse, texts, range(len(texts)))
        tokens = [text.tokens for text in parsed]
        infos = [TextInfo(text.total, text.truncated) for text in tokens]
        self._record_texts(infos, trace, start)
        sentences = await self._run_model(tokens, trace)
        return [
            self.encoder.token_encoding(text, sentence.mixture)
            for text, sentence in zip(parsed, sentences, strict=True)
        ]

    async def _read_cache(
        self, keys: list[bytes], mixtures: NDArray[np.float32]
    ) -> list[TextInfo | None]:
        if len(keys) <= _INLINE_COPIES:
            return self.cache.read(keys, mixtures)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tokenizer_pool, self.cache.read, keys, mixtures)

    def _record_texts(self, infos: Sequence[TextInfo], trace: Trace, start: float) -> None:
        trace.tokenization += time.perf_counter() - start
        trace.sentences += len(infos)
        trace.truncated += sum(info.truncated for info in infos)

    async def check(self) -> None:
        """Raise `UnavailableError` or `InferenceError` unless the model works."""
        if self.stopped:
            raise UnavailableError("The service is stopping.")
        if time.monotonic() - self.batcher.last_success < _RECENT_SECONDS:
            return
        submission = self.batcher.submit([self.encoder.probe])
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await submission.done
        except TimeoutError:
            raise UnavailableError(
                f"The model has not answered for {_TIMEOUT_SECONDS:.0f} seconds."
            ) from None
        finally:
            self.batcher.withdraw(submission)

    def stop(self) -> None:
        """Reject new work and fail what is in flight."""
        self.batcher.stop()

    def close(self) -> None:
        """Stop, and wait for running batches."""
        self.stop()
        self.host.backlogs.discard(self)
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        for thread in self.batcher.threads:  # daemons: a model that hangs does not block the exit
            thread.join(max(0.0, deadline - time.monotonic()))
        self._tokenizer_pool.shutdown(cancel_futures=True)

    async def _tokenize(
        self,
        tokenize: Callable[[Sequence[str]], list[T]],
        texts: Sequence[str],
        indices: Sequence[int],
    ) -> list[T]:
        """Tokenize the texts at these indices, unless the estimated wait is too long.

        Returns what `tokenize` does, for all slices of the texts.
        """
        self.host.check_wait()
        selected = [texts[index] for index in indices]
        characters = sum(map(len, selected))
        tokens, done = list[T](), 0
        try:
            if characters <= _INLINE_CHARACTERS:
                return tokenize(selected)
            loop = asyncio.get_running_loop()
            self._characters += characters
            try:
                # In slices, so that short requests get their turn between those of a long one.
                for part in slices(selected, _SLICE_CHARACTERS):
                    if self.stopped:
                        raise UnavailableError("The service is stopping.")
                    pool = self._tokenizer_pool
                    tokens += await loop.run_in_executor(pool, tokenize, part)
                    done += len(part)
            finally:
                self._characters -= characters
        except EmptyTextError as error:
            raise EmptyTextError(indices[done + error.index]) from None
        except TooLongError as error:
            raise TooLongError({indices[done + error.index]: error.reason}) from None
        self.host.check_wait()
        return tokens

    async def _run_model(self, tokens: list[Tokens], trace: Trace) -> list[Sentence]:
        """Run the model on texts; return their sentences with mixtures, in order."""
        start = time.perf_counter()
        submission = self.batcher.submit(tokens)
        try:
            await submission.done
        finally:
            self.batcher.withdraw(submission)
            trace.tokens += submission.computed_tokens
            trace.inference += submission.inference
            trace.queue += max(0.0, time.perf_counter() - start - submission.inference)
        return submission.sentences

    def seconds_ahead(self) -> float:
        """Estimated time before the first turn of a new request."""
        return self._seconds_for(self.queue.tokens_ahead)

    def seconds_queued(self) -> float:
        """Estimated time until all queued work is done."""
        return self._seconds_for(self.queue.tokens)

    def _seconds_for(self, tokens: int) -> float:
        """Estimated time to compute queued tokens, and to tokenize what is not queued yet."""
        rate = self.batcher.tokens_per_second
        return self._characters / _CHARACTERS_PER_SECOND + (tokens / rate if rate else 0.0)
