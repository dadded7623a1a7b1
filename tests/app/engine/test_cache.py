from collections import OrderedDict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.cache import _OVERHEAD_BYTES, Cache, Text, key_of

ENTRY = 2 * 3 * 4 + _OVERHEAD_BYTES
TEXT = Text(5, truncated=False)


def mixture(value: float) -> NDArray[np.float32]:
    return np.full((2, 3), value, np.float32)


def known(cache: Cache, *keys: bytes) -> list[float | None]:
    """What the cache holds under each key, by its first number."""
    found = np.full((len(keys), 2, 3), np.nan, np.float32)
    texts = cache.recall(keys, found)
    return [float(row[0, 0]) if text else None for row, text in zip(found, texts, strict=True)]


def test_what_is_kept_comes_back() -> None:
    cache = Cache(10 * ENTRY, 2, 3)
    assert known(cache, b"a") == [None]
    cache.keep([(b"a", mixture(1), Text(7, truncated=True))])
    found = np.zeros((2, 2, 3), np.float32)
    assert cache.recall([b"b", b"a"], found) == [None, Text(7, truncated=True)]
    np.testing.assert_array_equal(found, [np.zeros((2, 3)), np.ones((2, 3))])
    assert (len(cache), cache.used_bytes) == (1, ENTRY)


def test_what_is_given_out_is_a_copy() -> None:
    cache = Cache(ENTRY, 2, 3)
    cache.keep([(b"a", mixture(1), TEXT)])
    found = np.zeros((1, 2, 3), np.float32)
    cache.recall([b"a"], found)
    found[:] = 2
    assert known(cache, b"a") == [1]


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(2 * ENTRY, 2, 3)
    cache.keep([(b"a", mixture(1), TEXT), (b"b", mixture(2), TEXT)])
    known(cache, b"a")
    cache.keep([(b"c", mixture(3), TEXT)])
    assert known(cache, b"a", b"b", b"c") == [1, None, 3]


def test_nothing_is_kept_where_nothing_may_be() -> None:
    cache = Cache(ENTRY - 1, 2, 3)
    cache.keep([(b"a", mixture(1), TEXT)])
    assert (len(cache), cache.used_bytes, known(cache, b"a")) == (0, 0, [None])


def test_memory_is_taken_at_the_start() -> None:
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
def test_it_does_what_a_list_of_the_most_recent_does(
    steps: list[tuple[bool, bytes]], rows: int
) -> None:
    cache, model = Cache(rows * ENTRY, 2, 3), OrderedDict[bytes, float]()
    for number, (keeps, key) in enumerate(steps):
        if keeps and key not in model and rows:
            model[key] = number
            if len(model) > rows:
                model.popitem(last=False)
        elif not keeps and key in model:
            model.move_to_end(key)
        if keeps:
            cache.keep([(key, mixture(number), TEXT)])
        else:
            assert known(cache, key) == [model.get(key)]
        assert cache.used_bytes == len(model) * ENTRY
    assert [known(cache, key) for key in model] == [[value] for value in model.values()]


def test_a_key_tells_texts_and_cuts_apart() -> None:
    keys = {key_of(text, cut) for text in ("a", "A", "a ", "\ud800") for cut in ("right", "left")}
    assert len(keys) == 8
    assert {len(key) for key in keys} == {16}
    assert key_of("a", "right") == key_of("a", "right")
