"""A running server, measured by its own answers."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np

from model_store import LatteMixError
from training.evaluate.report import REMOTE, Way
from training.evaluate.scores import without_gaps
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores

_MOST_PAIRS = 256  # in a request: enough to fill the server's batches, soon answered
_TIMEOUT_SECONDS = 120.0
_TRIES = 5  # where others keep the server busy


class Remote:
    """The model behind a URL: `/similarity` is asked for every metric that `/info` names."""

    def __init__(self, url: str, client: httpx.Client | None = None) -> None:
        self.url = url.rstrip("/")
        self._client = client or httpx.Client(
            timeout=_TIMEOUT_SECONDS, transport=httpx.HTTPTransport(retries=2)
        )
        answer = self._ask("GET", "/info")
        try:
            info = answer.json()
            self.recommended: str = info["recommended_metric"]
            self._metrics: list[str] = info["metrics"]
            self._most = min(_MOST_PAIRS, info["max_client_batch_size"] // 2)
        except (ValueError, KeyError, TypeError) as error:
            raise LatteMixError(f"{self.url} is not a Latte-Mix server.") from error
        self.left_out: list[str] = []

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Way, Scores]]:
        """Every metric the server has, for every pair it takes."""
        texts = list(zip(pairs.a, pairs.b, strict=True))
        answers = [
            answer
            for start in range(0, len(texts), self._most)
            for answer in self._similarities(pairs.name, texts[start : start + self._most])
        ]
        for metric in self._metrics:
            scores = np.array([answer.get(metric, np.nan) for answer in answers])
            yield (REMOTE, metric), without_gaps(scores)

    def _similarities(self, name: str, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        response = self._ask("POST", "/similarity", {"pairs": pairs, "metrics": self._metrics})
        if response.is_success:
            return list(response.json()["similarities"])
        if len(pairs) == 1:
            self.left_out.append(
                f"{name}: {self.url} refused a pair, which is taken as least alike: "
                f"{_reason(response)}"
            )
            return [{}]
        middle = len(pairs) // 2  # one of them it does not take: which?
        return self._similarities(name, pairs[:middle]) + self._similarities(name, pairs[middle:])

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        for _ in range(_TRIES):
            try:
                response = self._client.request(method, self.url + path, json=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise LatteMixError(f"{self.url} does not answer: {error}.") from error
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            after = response.headers.get("Retry-After", "")
            time.sleep(int(after) if after.isdigit() else 1)
        status = response.status_code
        # These are about what was sent; anything else would also befall the next request.
        if not response.is_success and status not in (400, 413, 422):
            raise LatteMixError(f"{self.url}{path} answered {status}: {_reason(response)}")
        return response


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
