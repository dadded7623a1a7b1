"""Bodies of `/tokenize`."""

from pydantic import BaseModel, Field, StrictBool

from app.schemas.common import CompatibleRequest, PromptName, Texts


class TokenizeRequest(CompatibleRequest):
    """Texts to tokenize."""

    inputs: Texts = Field(
        description="A text, or a list of texts.", examples=[["A man is eating."]]
    )
    add_special_tokens: StrictBool = Field(
        True, description="Whether to return the special tokens that the model reads."
    )
    prompt_name: PromptName = None


class Token(BaseModel):
    """A token, as text-embeddings-inference describes it."""

    id: int
    text: str = Field(description="Its part of the text; the vocabulary entry if special.")
    special: bool
    start: int | None = Field(description="Offset of its first character; null if special.")
    stop: int | None = Field(description="Offset after its last character; null if special.")
