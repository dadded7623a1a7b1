"""Why a text is not answered with its mixture."""

from model_store import LatteMixError


class TextError(LatteMixError):
    """A text that no tokenizer can read."""


class EmptyTextError(TextError):
    """A text in which the model finds nothing to read; `index` is its place in the list.

    `others` are the places of further ones, where all were looked at.
    """

    reason = "is empty: the model finds no words in it"

    def __init__(self, index: int, *others: int) -> None:
        super().__init__(f"Text {index + 1} {self.reason}.")
        self.index = index
        self.others = others


class OverloadedError(LatteMixError):
    """More work is there than the service is set to hold."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooLongError(LatteMixError):
    """A text is longer than the model reads, and may not be cut; `index` is its place."""

    def __init__(self, index: int, total: int, limit: int) -> None:
        self.index = index
        self.reason = (
            f"has {total:,} tokens, more than the {limit:,} this model reads: shorten it, or send "
            '"truncate": true to have it cut'
        )
        super().__init__(f"Text {index + 1} {self.reason}.")


class InferenceError(LatteMixError):
    """The model failed."""

    def __init__(self) -> None:
        super().__init__("The model failed; the server's log says why.")


class NonFiniteError(LatteMixError):
    """The model computed mixtures with NaN or infinite values."""

    def __init__(self) -> None:
        super().__init__(
            "The model computed values that are not finite: serve another precision, or assemble "
            "the model again with `lattemix build`."
        )


class UnavailableError(LatteMixError):
    """The model cannot answer now: it stops or hangs."""
