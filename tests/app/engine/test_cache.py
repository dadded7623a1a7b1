from collections import OrderedDict
from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.cache import _OVERHEAD_BYTES, Cache, TextInfo, cache_key
from lattemix.settings import Truncate

ENTRY = 2 * 3 * 4 + _OVERHEAD_BYTES
INFO = TextInfo(5, truncated=False)


def mixture(value: float) -> NDArray[np.float32]:
    return np.full((2, 3), value, np.float32)


def cached(cache: Cache, *keys: bytes) -> list[float | None]:
    """First number of the mixture under each key, None for a miss."""
    mixtures = np.full((len(keys), 2, 3), np.nan, np.float32)
    infos = cache.read(keys, mixtures)
    return [float(row[0, 0]) if info else None for row, info in zip(mixtures, infos, strict=True)]


def test_returns_written_mixtures() -> None:
    cache = Cache(10 * ENTRY, 2, 3)
    assert cached(cache, b"a") == [None]
    cache.write([(b"a", mixture(1), TextInfo(7, truncated=True))])
    mixtures = np.zeros((2, 2, 3), np.float32)
    assert cache.read([b"b", b"a"], mixtures) == [None, TextInfo(7, truncated=True)]
    np.testing.assert_array_equal(mixtures, [np.zeros((2, 3)), np.ones((2, 3))])
    assert (len(cache), cache.used_bytes) == (1, ENTRY)


def test_returns_a_copy() -> None:
    cache = Cache(ENTRY, 2, 3)
    cache.write([(b"a", mixture(1), INFO)])
    mixtures = np.zeros((1, 2, 3), np.float32)
    cache.read([b"a"], mixtures)
    mixtures[:] = 2
    assert cached(cache, b"a") == [1]


def test_evicts_the_least_recently_used() -> None:
    cache = Cache(2 * ENTRY, 2, 3)
    cache.write([(b"a", mixture(1), INFO), (b"b", mixture(2), INFO)])
    cached(cache, b"a")
    cache.write([(b"c", mixture(3), INFO)])
    assert cached(cache, b"a", b"b", b"c") == [1, None, 3]


def test_holds_nothing_when_smaller_than_one_entry() -> None:
    cache = Cache(ENTRY - 1, 2, 3)
    cache.write([(b"a", mixture(1), INFO)])
    assert (len(cache), cache.used_bytes, cached(cache, b"a")) == (0, 0, [None])


def test_allocates_memory_at_the_start() -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    cache = Cache(100_000_000, 128, 20)
    assert resident() - before > 90_000_000
    assert len(cache) == 0


@given(
    st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=1)), max_size=80),
    st.integers(0, 5),
)
def test_behaves_like_an_ordered_dict(steps: list[tuple[bool, bytes]], rows: int) -> None:
    cache, model = Cache(rows * ENTRY, 2, 3), OrderedDict[bytes, float]()
    for number, (writes, key) in enumerate(steps):
        if writes and key not in model and rows:
            model[key] = number
            if len(model) > rows:
                model.popitem(last=False)
        elif not writes and key in model:
            model.move_to_end(key)
        if writes:
            cache.write([(key, mixture(number), INFO)])
        else:
            assert cached(cache, key) == [model.get(key)]
        assert cache.used_bytes == len(model) * ENTRY
    assert [cached(cache, key) for key in model] == [[value] for value in model.values()]


def test_keys_differ_by_text_and_truncation() -> None:
    texts = ("a", "A", "a ", "\ud800")
    keys = {cache_key(text, truncate) for text in texts for truncate in get_args(Truncate)}
    assert len(keys) == 16
    assert {len(key) for key in keys} == {16}
    assert cache_key("a", "right") == cache_key("a", "right")
