"""Body of `/tokenize`."""

from pydantic import Field, StrictBool

from app.schemas.common import CompatibleRequest, Texts


class TokenizeRequest(CompatibleRequest):
    """Texts to tokenize."""

    inputs: Texts = Field(
        description="A text, or a list of texts.", examples=[["A man is eating."]]
    )
    add_special_tokens: StrictBool = Field(
        True, description="Whether to return the special tokens that the model reads."
    )
    prompt_name: None = Field(None, description="Models have no prompts: leave it out.")
