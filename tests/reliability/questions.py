"""Questions for every endpoint of the model, and whether two answers to one are the same."""

import random
from base64 import b64decode
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx
import numpy as np

from tests.conftest import SENTENCES

TOLERANCE = 1e-5
JSON, NPY = "application/json", "application/x-npy"

_WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
_LONGEST = 24  # words: some are more than the model reads


@dataclass(frozen=True)
class Question:
    """A request, and how many sentences are in it."""

    path: str
    body: dict[str, Any]
    sentences: int
    accept: str = JSON

    async def ask(self, client: httpx.AsyncClient, name: str) -> Any:
        """What is answered to a request of this name, in a form that can be compared."""
        answer = await self.post(client, name)
        assert answer.status_code == 200, answer.text
        return self.read(answer)

    async def post(self, client: httpx.AsyncClient, name: str) -> httpx.Response:
        """The answer, be it a refusal."""
        headers = {"accept": self.accept, "x-request-id": name}
        answer = await client.post(self.path, json=self.body, headers=headers)
        assert answer.headers["x-request-id"] == name
        return answer

    def read(self, answer: httpx.Response) -> Any:
        """What it says, in a form that can be compared."""
        if self.accept == NPY:
            return np.load(BytesIO(answer.content)).tolist()
        return _comparable(self, answer.json())


def questions(count: int, chance: random.Random) -> list[Question]:
    """So many, about sentences of any length, a few of which are in several."""

    def text() -> str:
        if chance.random() < 0.2:
            return chance.choice(SENTENCES)
        return " ".join(chance.choices(_WORDS, k=chance.randint(1, _LONGEST)))

    return [_question(chance, [text() for _ in range(chance.randint(2, 8))]) for _ in range(count)]


def _question(chance: random.Random, texts: list[str]) -> Question:
    count = len(texts)
    pairs = list(zip(texts[::2], texts[1::2], strict=False))
    formats = ["dense", "flat", "sparse", "base64"]
    metric = chance.choice(["cosine", "js", "l2", "bhattacharyya"])
    embed: dict[str, Any] = {"inputs": texts, "format": chance.choice(formats)}
    if embed["format"] == "sparse":
        embed["cutoff"] = 0.1
    openai = {"input": texts, "encoding_format": chance.choice(["float", "base64"])}
    return chance.choice(
        [
            Question("/similarity", {"pairs": pairs, "metrics": [metric]}, 2 * len(pairs)),
            Question("/embed", embed, count),
            Question("/embed", {"inputs": texts}, count, NPY),
            Question("/rank", {"query": texts[0], "candidates": texts[1:]}, count),
            Question("/matrix", {"inputs": texts, "metric": metric}, count),
            Question("/matrix", {"inputs": texts, "metric": metric}, count, NPY),
            Question("/explain", {"pair": texts[:2], "metric": metric}, 2),
            Question("/v1/embeddings", openai | {"truncate": True, "model": "tiny"}, count),
        ]
    )


def _comparable(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, its numbers as numbers, and without an order that rounding may have made."""
    if question.body.get("format") == "base64":
        answer["embeddings"] = [_numbers(text) for text in answer["embeddings"]]
    if question.body.get("encoding_format") == "base64":
        for row in answer["data"]:
            row["embedding"] = _numbers(row["embedding"])
    match question.path:
        case "/rank":
            answer["results"].sort(key=lambda ranked: ranked["index"])
        case "/matrix":
            found = zip(answer.pop("pairs"), answer.pop("scores"), strict=True)
            answer["pairs"] = sorted(map(list, found))
        case "/explain":
            del answer["alignment"]["links"]
            for dims in answer["latents"].values():
                dims.sort(key=lambda dim: dim["dim"])
    return answer


def _numbers(text: str) -> list[float]:
    found: list[float] = np.frombuffer(b64decode(text), "<f4").tolist()
    return found


def same(found: Any, expected: Any) -> bool:
    """Whether two answers have the same shape and words, and numbers within the tolerance."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= TOLERANCE
    return bool(found == expected)
