"""A running server, measured by its own answers."""

from collections.abc import Iterator

import httpx
import numpy as np

from lattemix.client import Client
from lattemix.responses import Rejection
from training.evaluate.report import REMOTE, Way
from training.evaluate.scores import without_gaps
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores


class Remote:
    """The model behind a URL: `/similarity` is asked for every metric that `/info` names."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self.url = url.rstrip("/")
        with self._client() as client:
            info = client.info()
        self.recommended: str = info.recommended_metric
        self._metrics = info.metrics
        self.left_out: list[str] = []

    def __call__(self, pairs: Pairs) -> Iterator[tuple[Way, Scores]]:
        """Every metric the server has, for every pair it takes."""
        texts = zip(pairs.a, pairs.b, strict=True)
        with self._client() as client:
            answers = list(client.iter_similarity(texts, self._metrics))
        for answer in answers:
            if isinstance(answer, Rejection):
                self.left_out.append(
                    f"{pairs.name}: {self.url} rejected pair {answer.index}, scored as least "
                    f"similar: {answer.reason}"
                )
        for metric in self._metrics:
            scores = np.array([getattr(answer, metric, np.nan) for answer in answers])
            yield (REMOTE, metric), without_gaps(scores)

    def _client(self) -> Client:
        return Client(self.url, transport=self._transport)
