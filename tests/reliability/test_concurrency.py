"""Two hundred clients at once, of a real server, some of which leave."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import httpx
from lattemix.client.local import Local

from app.settings import Settings
from model_store import Store
from tests.app.conftest import serving
from tests.reliability.conftest import PATIENCE, counted, eventually, posted
from tests.reliability.questions import Question, questions, same

CLIENTS, EACH = 200, 4  # questions, one after the other
LEAVING = 40  # clients, in the midst of their second question


async def asked_alone(settings: Settings, asked: list[Question]) -> list[Any]:
    """What each is answered if there is nothing else, and nothing is remembered."""
    transport = Local(settings.model_copy(update={"cache_bytes": 0}))
    async with httpx.AsyncClient(transport=transport, base_url="http://alone") as client:
        return [await question.ask(client, str(number)) for number, question in enumerate(asked)]


async def leave(url: str, question: Question, seconds: float) -> None:
    """Ask, and be gone after a while, whether or not there was an answer."""
    address = httpx.URL(url)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(posted(question.path, json.dumps(question.body).encode()))
    await writer.drain()
    await asyncio.sleep(seconds)
    writer.close()


async def asked_together(url: str, asked: list[Question], chance: random.Random) -> dict[int, Any]:
    """The answers by question, without those that nobody waited for."""
    answers: dict[int, Any] = {}

    async def ask_all(number: int, client: httpx.AsyncClient) -> None:
        for place in range(number * EACH, (number + 1) * EACH):
            if number < LEAVING and place % EACH == 1:
                await leave(url, asked[place], chance.choice([0, 0.01, 0.1, 1.2]))
            else:
                answers[place] = await asked[place].ask(client, f"question-{place}")

    # A connection for every question: one that is kept alive may be closed as it is used again.
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        await asyncio.gather(*(ask_all(number, client) for number in range(CLIENTS)))
    return answers


def test_everyone_gets_their_own_answer_and_all_are_counted(store: Store) -> None:
    chance = random.Random(11)
    asked = questions(CLIENTS * EACH, chance)
    settings = Settings(store=store.root, model="tiny")
    expected = asyncio.run(asked_alone(settings, asked))
    # Room for few: what is remembered is forgotten again all the time.
    patient = {"LATTEMIX_CACHE_BYTES": "20000", "LATTEMIX_MAX_WAIT_SECONDS": "60"}
    with serving(store, **patient) as (_, url):
        answers = asyncio.run(asked_together(url, asked, chance))
        assert len(answers) == CLIENTS * EACH - LEAVING
        wrong = [asked[place] for place in answers if not same(answers[place], expected[place])]
        assert wrong == []
        eventually(lambda: counted(url).total("lattemix_requests_total", "POST") >= len(asked))
        found = counted(url)
    by_path = Counter(question.path for question in asked)
    answered = Counter(asked[place].path for place in answers)
    for path, count in by_path.items():
        requests = {
            status: found.total("lattemix_requests_total", path, "POST", status)
            for status in ("200", "499")
        }
        assert sum(requests.values()) == count
        assert requests["200"] >= answered[path]  # some of those who left had been answered
    assert found.total("lattemix_requests_total", "POST") == len(asked)  # with no other status
    sentences = found.total("lattemix_sentences_total")
    kept = sum(asked[place].sentences for place in answers)
    assert kept <= sentences <= sum(question.sentences for question in asked)
    assert sentences == found.total("lattemix_cache_hits_total") + found.total(
        "lattemix_cache_misses_total"
    )
    assert found.total("lattemix_queue_sentences") == found.total("lattemix_queue_tokens") == 0
    assert found.total("lattemix_rejected_total") == 0
