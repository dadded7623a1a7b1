"""Random requests to the model's endpoints, and comparison of their responses."""

import random
from base64 import b64decode
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx
import numpy as np

from tests.tiny import SENTENCES

TOLERANCE = 1e-5
JSON, NPY = "application/json", "application/x-npy"

_WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
_MAX_WORDS = 24  # more than the model reads


@dataclass(frozen=True)
class ApiRequest:
    """A request and its number of sentences."""

    path: str
    body: dict[str, Any]
    sentences: int
    accept: str = JSON

    async def send(self, client: httpx.AsyncClient, request_id: str) -> Any:
        """Send the request and return the content of its successful response."""
        response = await self.post(client, request_id)
        assert response.status_code == 200, response.text
        return self.content(response)

    async def post(self, client: httpx.AsyncClient, request_id: str) -> httpx.Response:
        """Send the request and return its response, whatever its status."""
        headers = {"accept": self.accept, "x-request-id": request_id}
        response = await client.post(self.path, json=self.body, headers=headers)
        assert response.headers["x-request-id"] == request_id
        return response

    def content(self, response: httpx.Response) -> Any:
        """Return the content of a response in a form that `same` compares."""
        if self.accept == NPY:
            return np.load(BytesIO(response.content)).tolist()
        return _comparable(self, response.json())


def random_requests(count: int, rng: random.Random) -> list[ApiRequest]:
    """Return requests with sentences of all lengths, some of them shared."""

    def text() -> str:
        if rng.random() < 0.2:
            return rng.choice(SENTENCES)
        return " ".join(rng.choices(_WORDS, k=rng.randint(1, _MAX_WORDS)))

    return [_request(rng, [text() for _ in range(rng.randint(2, 8))]) for _ in range(count)]


def _request(rng: random.Random, texts: list[str]) -> ApiRequest:
    count = len(texts)
    pairs = list(zip(texts[::2], texts[1::2], strict=False))
    formats = ["dense", "flat", "sparse", "base64"]
    metric = rng.choice(["cosine", "js", "l2", "bhattacharyya"])
    embed: dict[str, Any] = {"inputs": texts, "format": rng.choice(formats)}
    if embed["format"] == "sparse":
        embed["cutoff"] = 0.1
    openai = {"input": texts, "encoding_format": rng.choice(["float", "base64"])}
    return rng.choice(
        [
            ApiRequest("/similarity", {"pairs": pairs, "metrics": [metric]}, 2 * len(pairs)),
            ApiRequest("/embed", embed, count),
            ApiRequest("/embed", {"inputs": texts}, count, NPY),
            ApiRequest("/embed", {"inputs": texts, "format": "dense"}, count, NPY),
            ApiRequest("/rank", {"query": texts[0], "texts": texts[1:]}, count),
            ApiRequest("/matrix", {"inputs": texts, "metric": metric}, count),
            ApiRequest("/matrix", {"inputs": texts, "metric": metric}, count, NPY),
            ApiRequest("/explain", {"pair": texts[:2], "metric": metric}, 2),
            ApiRequest("/v1/embeddings", openai | {"truncate": True, "model": "tiny"}, count),
        ]
    )


def _comparable(request: ApiRequest, content: dict[str, Any]) -> dict[str, Any]:
    """Decode base64, and sort what rounding errors may order differently."""
    if request.body.get("format") == "base64":
        content["embeddings"] = [_decode(text) for text in content["embeddings"]]
    if request.body.get("encoding_format") == "base64":
        for row in content["data"]:
            row["embedding"] = _decode(row["embedding"])
    match request.path:
        case "/rank":
            content["results"].sort(key=lambda result: result["index"])
        case "/matrix":
            rows = zip(content.pop("pairs"), content.pop("scores"), strict=True)
            content["pairs"] = sorted(map(list, rows))
        case "/explain":
            del content["alignment"]["links"]
            for dims in content["latents"].values():
                dims.sort(key=lambda dim: dim["dim"])
    return content


def _decode(text: str) -> list[float]:
    numbers: list[float] = np.frombuffer(b64decode(text), "<f4").tolist()
    return numbers


def same(actual: Any, expected: Any) -> bool:
    """Whether two contents are equal, numbers within the tolerance."""
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            same(actual[key], expected[key]) for key in actual
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(expected, float):
        return abs(actual - expected) <= TOLERANCE
    return bool(actual == expected)
