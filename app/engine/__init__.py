"""From text to mixtures."""

from app.engine.encoder import Encoder, Encoding
from app.engine.engine import Engine
from app.engine.errors import EmptyTextError, TextError

__all__ = ["EmptyTextError", "Encoder", "Encoding", "Engine", "TextError"]
