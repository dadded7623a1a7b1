import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.engine.cache import _OVERHEAD_BYTES, Cache

MIXTURE = np.ones((2, 3), np.float32)  # 24 bytes
ENTRY = 24 + 1 + _OVERHEAD_BYTES  # with a key of one byte


def test_what_is_kept_comes_back() -> None:
    cache = Cache(10 * ENTRY)
    assert cache.get(b"a") is None
    cache.put(b"a", MIXTURE)
    assert cache.get(b"a") is MIXTURE
    assert (len(cache), cache.bytes) == (1, ENTRY)


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(2 * ENTRY)
    cache.put(b"a", MIXTURE)
    cache.put(b"b", MIXTURE)
    cache.get(b"a")
    cache.put(b"c", MIXTURE)
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]


def test_nothing_is_kept_where_nothing_may_be() -> None:
    cache = Cache(0)
    cache.put(b"a", MIXTURE)
    assert (len(cache), cache.bytes) == (0, 0)


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(1, 50))), st.integers(0, 5000))
def test_bytes_are_those_of_what_is_held_and_within_the_limit(
    puts: list[tuple[bytes, int]], limit: int
) -> None:
    cache = Cache(limit)
    for key, size in puts:
        cache.put(key, np.zeros(size, np.float32))
        assert cache.bytes <= limit
    held = {key: cache.get(key) for key, _ in puts}
    sizes = [
        len(key) + mixture.nbytes + _OVERHEAD_BYTES
        for key, mixture in held.items()
        if mixture is not None
    ]
    assert (sum(sizes), len(sizes)) == (cache.bytes, len(cache))
