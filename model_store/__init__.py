"""The artifacts of models: the contract between training and serving."""

from model_store.errors import ArtifactError, LatteMixError, StoreError
from model_store.manifest import Artifact, Manifest, Metric, Precision
from model_store.store import Store

__all__ = [
    "Artifact",
    "ArtifactError",
    "LatteMixError",
    "Manifest",
    "Metric",
    "Precision",
    "Store",
    "StoreError",
]
