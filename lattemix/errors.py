"""Errors about a text or from a running model."""

from model_store import LatteMixError


class TextError(LatteMixError):
    """A text cannot be tokenized."""


class EmptyTextError(TextError):
    """A text has no tokens that count.

    Attributes:
        index: position of the first empty text in the list.
        others: positions of the other empty texts, where all were checked.
    """

    reason = "is empty: the model finds no words in it"

    def __init__(self, index: int, *others: int, name: str | None = None) -> None:
        super().__init__(f"{name or f'Text {index + 1}'} {self.reason}.")
        self.index = index
        self.others = others


class TooLongError(LatteMixError):
    """Texts have more tokens than allowed and must not be truncated.

    Attributes:
        index: position of the first such text in the list.
        reason: its problem, without its subject.
        reasons: the problem of every such text, by position.
    """

    def __init__(self, reasons: dict[int, str], name: str | None = None) -> None:
        self.reasons = reasons
        self.index, self.reason = next(iter(reasons.items()))
        super().__init__(f"{name or f'Text {self.index + 1}'} {self.reason}.")


class InferenceError(LatteMixError):
    """The model failed."""

    def __init__(self) -> None:
        super().__init__("The model failed; the log says why.")


class NonFiniteError(LatteMixError):
    """The model computed NaN or infinite values."""

    def __init__(self) -> None:
        super().__init__(
            "The model computed values that are not finite: serve another precision, or assemble "
            "the model again with `lattemix build`."
        )


class FingerprintError(LatteMixError):
    """Mixtures or scores of different weights cannot be combined."""


class DimensionsError(LatteMixError):
    """A vector of the model cannot have this many numbers."""

    def __init__(self, dimensions: int, latent_dims: int, classes: int) -> None:
        super().__init__(
            f"dimensions must be a multiple of {classes} from {classes} to "
            f"{latent_dims * classes:,}, not {dimensions:,}."
        )


class DTypeError(LatteMixError):
    """Vectors cannot be stored in this type."""
