"""From text to mixtures."""

from app.engine.encoder import Encoder, Encoding
from app.engine.tokenization import EmptyTextError, TextError

__all__ = ["EmptyTextError", "Encoder", "Encoding", "TextError"]
