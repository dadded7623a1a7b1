"""Backbones on disk: find, download, check and read them, without torch."""

from lattemix.build.backbones.checkpoint import BackboneError, Checkpoint
from lattemix.build.backbones.sources import open_backbone
from lattemix.build.backbones.token_vectors import TokenVectors

__all__ = ["BackboneError", "Checkpoint", "TokenVectors", "open_backbone"]
