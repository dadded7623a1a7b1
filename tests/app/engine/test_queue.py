import asyncio
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.queue import Queue, Sentence, Submission
from lattemix.tokenization import Tokens

LOOP = asyncio.new_event_loop()


@pytest.fixture(autouse=True, scope="module")
def _close_loop() -> Iterator[None]:
    yield
    LOOP.close()


def sentences(*lengths: int) -> list[Sentence]:
    return [Sentence(Tokens([1] * length, length), b"") for length in lengths]


def submit(queue: Queue, added: Sequence[Sentence]) -> Submission:
    """Queue sentences together."""
    submission = Submission(LOOP)
    for sentence in added:
        submission.append(sentence)
    queue.add(submission, list(added))
    return submission


def lengths(batch: list[Sentence]) -> list[int]:
    return sorted(map(len, batch))


def test_batches_sentences_of_similar_length() -> None:
    queue = Queue(1000, overhead=8)
    submit(queue, sentences(100, 10, 11, 95, 9, 50))
    assert lengths(queue.take()) == [9, 10, 11]
    assert lengths(queue.take()) == [50]
    assert lengths(queue.take()) == [95, 100]
    assert queue.take() == []


@pytest.mark.parametrize(
    ("overhead", "expected"),
    # The cost per token is (overhead + 10) / 10 for the first alone, (overhead + 40) / 30 for both.
    [(0, [[10], [20]]), (4, [[10], [20]]), (6, [[10, 20]]), (1000, [[10, 20]])],
)
def test_weighs_padding_against_overhead(overhead: float, expected: list[list[int]]) -> None:
    queue = Queue(1000, overhead=overhead)
    submit(queue, sentences(10, 20))
    assert [lengths(queue.take()) for _ in expected] == expected


def test_batch_search_continues_past_a_local_cost_maximum() -> None:
    # The cost per token is 1.10 for the first alone, 1.14 for two and 1.05 for all.
    queue = Queue(1000, overhead=1)
    submit(queue, sentences(10, 12, 12, 12, 12))
    assert lengths(queue.take()) == [10, 12, 12, 12, 12]


def test_batch_with_padding_fits_the_budget() -> None:
    queue = Queue(30)
    submit(queue, sentences(*[10] * 7))
    assert [len(queue.take()) for _ in range(4)] == [3, 3, 1, 0]


def test_batch_padded_to_multiples_fits_the_budget() -> None:
    queue = Queue(32, padded=lambda length: -(-length // 8) * 8)
    submit(queue, sentences(*[7] * 9))
    assert [len(queue.take()) for _ in range(4)] == [4, 4, 1, 0]


@pytest.mark.parametrize(
    ("queued", "batches"),
    [
        (4, [4]),  # 40 tokens are too few to divide
        (12, [6, 6]),
        (40, [10, 10, 10, 6, 4]),  # a long queue fills the budget
    ],
)
def test_divides_a_short_queue_among_parallel_batches(queued: int, batches: list[int]) -> None:
    queue = Queue(100, parallel=2)
    submit(queue, sentences(*[10] * queued))
    taken = [len(queue.take()) for _ in batches]
    assert taken == batches
    assert queue.sentences == 0


def test_sentence_over_the_budget_gets_its_own_batch() -> None:
    queue = Queue(30)
    submit(queue, sentences(50, 50))
    assert [len(queue.take()) for _ in range(3)] == [1, 1, 0]


def test_small_request_overtakes_a_large_one() -> None:
    queue = Queue(40)
    large, small = sentences(*[20] * 100), sentences(5)
    submit(queue, large)
    assert set(queue.take()) <= set(large)
    submit(queue, small)
    first, second = queue.take(), queue.take()
    assert small[0] in [*first, *second]  # at most one batch before its turn


def test_large_request_is_not_starved_by_newer_small_ones() -> None:
    queue = Queue(20)
    large = sentences(*[20] * 100)
    submit(queue, large)
    missing = set(large)
    for _ in range(2 * len(large)):  # half of the turns are its own
        for _ in range(3):
            submit(queue, sentences(5))
        missing -= set(queue.take())
    assert not missing
    assert queue.sentences > 0  # newer ones still wait


def test_wait_is_at_most_twice_the_queue_at_arrival() -> None:
    queue = Queue(20)
    chance = random.Random(0)
    turns = 0
    due: dict[Sentence, int] = {}  # latest turn of each
    for _ in range(2000):
        if queue.sentences < 500:
            added = sentences(*[20] * chance.choice([1, 1, 1, 1, 2, 9, 64]))
            submit(queue, added)
            for sentence in added:
                due[sentence] = turns + 2 * queue.sentences
        for sentence in queue.take():  # one per turn
            assert turns <= due.pop(sentence)
        turns += 1
    assert max(due.values()) > turns  # the queue stayed full


def test_tokens_ahead_is_two_turns_per_request_at_most_the_queue() -> None:
    queue = Queue(40)
    assert queue.tokens_ahead == 0
    submit(queue, sentences(5, 6))
    assert queue.tokens_ahead == 11  # the whole queue
    large = sentences(*[20] * 100)
    submit(queue, large)
    assert queue.tokens_ahead == 2 * (11 + 40)
    submit(queue, sentences(30))
    assert queue.tokens_ahead == 2 * (11 + 40 + 30)
    for sentence in large[:99]:
        queue.discard(sentence)
    assert queue.tokens_ahead == queue.tokens == 11 + 20 + 30
    while queue.take():
        pass
    assert queue.tokens_ahead == 0


def test_requests_share_a_batch() -> None:
    queue = Queue(100)
    requests = [sentences(8), sentences(8), sentences(8)]
    for request in requests:
        submit(queue, request)
    assert set(queue.take()) == {request[0] for request in requests}


def test_does_not_take_discarded_sentences() -> None:
    queue = Queue(100)
    kept, dropped = sentences(5, 5)
    submit(queue, [dropped, kept])
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
def test_takes_every_sentence_once_within_the_budget(
    requests: list[list[int]], budget: int, overhead: int, chance: random.Random
) -> None:
    queue = Queue(budget, overhead=overhead)
    waiting: dict[Sentence, None] = {}  # not a set, for a reproducible order
    taken: list[Sentence] = []

    def take() -> bool:
        batch = queue.take()
        assert len(batch) <= 1 or max(lengths(batch)) * len(batch) <= budget
        taken.extend(batch)
        return bool(batch)

    for request in requests:
        new = sentences(*request)
        shared = [sentence for sentence in waiting if sentence in queue]
        submit(queue, [*new, *chance.sample(shared, min(len(shared), 2))])
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
    assert (queue.sentences, queue.tokens, queue.tokens_ahead) == (0, 0, 0)
    assert not queue._rotation
    assert not queue._by_age


def test_takes_a_shared_sentence_at_the_first_turn_of_any_request() -> None:
    queue = Queue(20)
    large = sentences(*range(10, 20))
    submit(queue, large)
    submit(queue, [large[-1]])  # the last of the large request
    assert queue.sentences == 10
    assert large[-1] in [*queue.take(), *queue.take()]
    assert (queue.sentences, len(queue._rotation)) == (8, 1)


def test_withdrawn_request_has_no_turn_and_leaves_shared_sentences() -> None:
    queue = Queue(20)
    own, shared, other = sentences(10, 11, 12)
    withdrawn = submit(queue, [own, shared])
    submit(queue, [shared, other])
    assert queue.withdraw(withdrawn) == [own]
    assert (queue.sentences, queue.tokens, queue.tokens_ahead) == (2, 23, 23)
    assert [queue.take(), queue.take(), queue.take()] == [[shared], [other], []]
    assert not queue._rotation
