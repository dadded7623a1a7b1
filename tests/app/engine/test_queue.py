import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.queue import Queue, Sentence
from lattemix.tokenization import Tokens


def sentences(*lengths: int) -> list[Sentence]:
    return [Sentence(Tokens([1] * length, length), b"") for length in lengths]


def lengths(batch: list[Sentence]) -> list[int]:
    return sorted(map(len, batch))


def test_a_batch_takes_what_is_of_similar_length() -> None:
    queue = Queue(1000, overhead=8)
    queue.add(sentences(100, 10, 11, 95, 9, 50))
    assert lengths(queue.take()) == [9, 10, 11]
    assert lengths(queue.take()) == [50]
    assert lengths(queue.take()) == [95, 100]
    assert queue.take() == []


@pytest.mark.parametrize(
    ("overhead", "expected"),
    # A token costs (overhead + 10) / 10 in the one batch and (overhead + 40) / 30 in the other.
    [(0, [[10], [20]]), (4, [[10], [20]]), (6, [[10, 20]]), (1000, [[10, 20]])],
)
def test_padding_is_weighed_against_what_a_batch_costs(
    overhead: float, expected: list[list[int]]
) -> None:
    queue = Queue(1000, overhead=overhead)
    queue.add(sentences(10, 20))
    assert [lengths(queue.take()) for _ in expected] == expected


def test_a_better_fit_further_on_is_found() -> None:
    # A token costs 1.10 with the first alone, 1.14 with the second and 1.05 with all of them.
    queue = Queue(1000, overhead=1)
    queue.add(sentences(10, 12, 12, 12, 12))
    assert lengths(queue.take()) == [10, 12, 12, 12, 12]


def test_a_batch_stays_within_the_budget_padding_included() -> None:
    queue = Queue(30)
    queue.add(sentences(*[10] * 7))
    assert [len(queue.take()) for _ in range(4)] == [3, 3, 1, 0]


def test_padding_to_multiples_counts_against_the_budget() -> None:
    queue = Queue(32, padded=lambda length: -(-length // 8) * 8)
    queue.add(sentences(*[7] * 9))
    assert [len(queue.take()) for _ in range(4)] == [4, 4, 1, 0]


def test_a_sentence_longer_than_the_budget_has_a_batch_of_its_own() -> None:
    queue = Queue(30)
    queue.add(sentences(50, 50))
    assert [len(queue.take()) for _ in range(3)] == [1, 1, 0]


def test_a_small_request_does_not_wait_for_all_of_a_large_one() -> None:
    queue = Queue(40)
    large, small = sentences(*[20] * 100), sentences(5)
    queue.add(large)
    assert set(queue.take()) <= set(large)
    queue.add(small)
    first, second = queue.take(), queue.take()
    assert small[0] in [*first, *second]  # at most one batch comes before its turn


def test_a_large_request_does_not_wait_for_all_the_small_ones_that_come_after_it() -> None:
    queue = Queue(20)
    large = sentences(*[20] * 100)
    queue.add(large)
    missing = set(large)
    for _ in range(2 * len(large)):  # half of the turns are its own
        for _ in range(3):
            queue.add(sentences(5))
        missing -= set(queue.take())
    assert not missing
    assert queue.sentences > 0  # others wait, which came later


def test_no_request_waits_for_what_was_before_it_more_than_twice() -> None:
    queue = Queue(20)
    chance = random.Random(0)
    turns = 0
    due: dict[Sentence, int] = {}  # by which turn each is to have been taken
    for _ in range(2000):
        if queue.sentences < 500:
            added = sentences(*[20] * chance.choice([1, 1, 1, 1, 2, 9, 64]))
            queue.add(added)
            for sentence in added:
                due[sentence] = turns + 2 * queue.sentences
        for sentence in queue.take():  # one a turn
            assert turns <= due.pop(sentence)
        turns += 1
    assert max(due.values()) > turns  # it was full to the end


def test_ahead_of_a_newcomer_is_a_turn_of_everyone_and_as_much_of_the_oldest() -> None:
    queue = Queue(40)
    assert queue.ahead == 0
    queue.add(sentences(5, 6))
    assert queue.ahead == 11  # all there is
    large = sentences(*[20] * 100)
    queue.add(large)
    assert queue.ahead == 2 * (11 + 40)
    queue.add(sentences(30))
    assert queue.ahead == 2 * (11 + 40 + 30)
    for sentence in large[:99]:
        queue.discard(sentence)
    assert queue.ahead == queue.tokens == 11 + 20 + 30
    while queue.take():
        pass
    assert queue.ahead == 0


def test_requests_share_a_batch() -> None:
    queue = Queue(100)
    requests = [sentences(8), sentences(8), sentences(8)]
    for request in requests:
        queue.add(request)
    assert set(queue.take()) == {request[0] for request in requests}


def test_what_nobody_wants_any_more_is_not_taken() -> None:
    queue = Queue(100)
    kept, dropped = sentences(5, 5)
    queue.add([dropped, kept])
    queue.discard(dropped)
    queue.discard(dropped)
    assert (queue.sentences, queue.tokens) == (1, 5)
    assert queue.take() == [kept]


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=12), max_size=8),
    st.integers(1, 300),
    st.integers(0, 50),
    st.randoms(use_true_random=False),
)
def test_every_sentence_is_taken_once_within_the_budget(
    requests: list[list[int]], budget: int, overhead: int, chance: random.Random
) -> None:
    queue = Queue(budget, overhead=overhead)
    waiting: dict[Sentence, None] = {}  # a set would have them in another order each time
    taken: list[Sentence] = []

    def take() -> bool:
        batch = queue.take()
        assert len(batch) <= 1 or max(lengths(batch)) * len(batch) <= budget
        taken.extend(batch)
        return bool(batch)

    for request in requests:
        new = sentences(*request)
        shared = [sentence for sentence in waiting if queue.waits(sentence)]
        queue.add([*new, *chance.sample(shared, min(len(shared), 2))])
        for sentence in new:
            if chance.random() < 0.2:
                queue.discard(sentence)
            else:
                waiting[sentence] = None
        if chance.random() < 0.5:
            take()
    while take():
        pass
    assert len(taken) == len(set(taken))
    assert set(taken) == set(waiting)
    assert (queue.sentences, queue.tokens, queue.ahead) == (0, 0, 0)
    assert not queue._turns
    assert not queue._came


def test_a_sentence_may_be_taken_in_the_turn_of_everyone_who_wants_it() -> None:
    queue = Queue(20)
    large = sentences(*range(10, 20))
    queue.add(large)
    queue.add([large[-1]])  # which would be the last
    assert queue.sentences == 10
    assert large[-1] in [*queue.take(), *queue.take()]
    assert (queue.sentences, len(queue._turns)) == (8, 1)
