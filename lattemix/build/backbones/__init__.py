"""Backbones on disk: find, download, check and read them, without torch."""

from lattemix.build.backbones.checkpoint import Checkpoint
from lattemix.build.backbones.sources import open_backbone
from lattemix.build.backbones.tokens import TokenVectors
from lattemix.build.backbones.weights import BackboneError

__all__ = ["BackboneError", "Checkpoint", "TokenVectors", "open_backbone"]
