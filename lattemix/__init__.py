"""Semantic similarity with latent categorical mixtures.

```python
import lattemix

model = lattemix.load()
model.similarity("A man is eating.", "Someone is having lunch.")
```

`load` runs a model in this process; `Client` and `AsyncClient` call a server with the same methods.
"""

import os
from typing import TYPE_CHECKING, Any

# ONNX Runtime sends usage data by default since 1.29. Set before onnxruntime is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

if TYPE_CHECKING:
    from lattemix.arguments import TruncationWarning
    from lattemix.bulk.dedup.lists import Deduplication, dedup
    from lattemix.client import AsyncClient, Client, ServerError
    from lattemix.errors import FingerprintError
    from lattemix.loading import load
    from lattemix.model import Model
    from lattemix.responses import Explanation, MatrixResponse, RankResult, Rejection
    from model_store import LatteMixError, Metric

__version__ = "0.2.0"  # the only place; pyproject.toml reads it

_PUBLIC = {
    "AsyncClient": "lattemix.client",
    "Client": "lattemix.client",
    "Deduplication": "lattemix.bulk.dedup.lists",
    "Explanation": "lattemix.responses",
    "FingerprintError": "lattemix.errors",
    "LatteMixError": "model_store",
    "MatrixResponse": "lattemix.responses",
    "Metric": "model_store",
    "Model": "lattemix.model",
    "RankResult": "lattemix.responses",
    "Rejection": "lattemix.responses",
    "ServerError": "lattemix.client",
    "TruncationWarning": "lattemix.arguments",
    "dedup": "lattemix.bulk.dedup.lists",
    "load": "lattemix.loading",
}

__all__ = [
    "AsyncClient",
    "Client",
    "Deduplication",
    "Explanation",
    "FingerprintError",
    "LatteMixError",
    "MatrixResponse",
    "Metric",
    "Model",
    "RankResult",
    "Rejection",
    "ServerError",
    "TruncationWarning",
    "__version__",
    "dedup",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use: a client needs no ONNX Runtime, a model no httpx."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lattemix' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
