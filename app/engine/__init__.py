"""From text to mixtures."""

from app.engine.encoder import Encoder, Encoding

__all__ = ["Encoder", "Encoding"]
