"""From text to mixtures."""

from app.engine.encoder import Dissection, Encoder, Encoding
from app.engine.engine import Engine
from app.engine.errors import EmptyTextError, TextError

__all__ = ["Dissection", "EmptyTextError", "Encoder", "Encoding", "Engine", "TextError"]
