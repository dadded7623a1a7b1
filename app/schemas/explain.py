"""Bodies of `/explain` and `/latents`."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StrictBool

from app.schemas.common import Cuttable, Text, Two, number
from model_store import Metric


class ExplainRequest(Cuttable):
    """A pair whose similarity is to be explained."""

    pair: Two[Text] = Field(
        description="Two sentences.", examples=[["A man is eating.", "Someone is having lunch."]]
    )
    metric: Metric | None = Field(
        None, description="Which similarity; else the model's recommended one."
    )
    latents: Annotated[int, BeforeValidator(number)] = Field(
        5, ge=0, description="How many latent dims to show that agree most, and that disagree most."
    )
    token_alignment: StrictBool = Field(
        True, description="Return how similar every token is to every other; else only words."
    )
    token_mixtures: StrictBool = Field(
        False, description="Return the mixture [L, C] of every token, too."
    )


class ExplainedToken(BaseModel):
    """A token, and its part in the similarity."""

    token: str = Field(description="As the vocabulary spells it.", examples=["##ing"])
    start: int = Field(description="Its first character in the text.")
    end: int = Field(description="The character after its last; a special token has none.")
    special: bool = Field(description="Whether the tokenizer added it.")
    word: int | None = Field(description="The place of its word in `words`.")
    weight: float = Field(description="What part of the sentence's mixture it is.")
    contribution: float = Field(description="What it adds to the similarity.")


class ExplainedWord(BaseModel):
    """A word, which is one token or several."""

    text: str = Field(description="As it was sent.")
    start: int = Field(description="Its first character in the text.")
    end: int = Field(description="The character after its last.")
    tokens: list[int] = Field(description="Places of its tokens.")
    contribution: float = Field(description="What its tokens add to the similarity.")


class ExplainedSentence(BaseModel):
    """One of the two sentences."""

    tokens: list[ExplainedToken] = Field(
        description="What was read, in order. Their contributions add up to the similarity."
    )
    words: list[ExplainedWord] = Field(description="The same by words, without special tokens.")
    total_tokens: int = Field(description="Tokens of the whole sentence, read or not.")
    truncated: bool = Field(description="Whether it was longer than the model reads.")
    mixtures: str | None = Field(
        None, description="Of every token [S, L, C], if asked for: float32 in base64, as `/embed`."
    )


class Link(BaseModel):
    """Two words that are each other's best match."""

    a: int = Field(description="Place of the one in the words of `a`.")
    b: int = Field(description="Place of the other in those of `b`.")
    similarity: float = Field(description="Of the two words' mixtures.")


class Alignment(BaseModel):
    """How similar the tokens, and the words, of the two are to each other."""

    tokens: list[list[float]] | None = Field(
        None, description="Of every token of `a` to every one of `b`, unless not asked for."
    )
    words: list[list[float]] = Field(description="Of every word to every word.")
    links: list[Link]


class LivelyClass(BaseModel):
    """The class that most of a sentence is in, for one latent dim."""

    index: int = Field(description="Which class: `/latents/{dim}/{class}` tells more.")
    share: float = Field(description="How much of the sentence is in it.")
    words: list[str] | None = Field(
        None, description="Words of the training corpus that are most in it, if known."
    )


class ExplainedDim(BaseModel):
    """A latent dim's part in the similarity."""

    dim: int
    contribution: float = Field(description="Those of all dims add up to the similarity.")
    a: LivelyClass
    b: LivelyClass


class ExplainedDims(BaseModel):
    """The latent dims that add most to the similarity, and least."""

    agree: list[ExplainedDim] = Field(description="What adds most, first.")
    disagree: list[ExplainedDim] = Field(description="What adds least, first.")


class ExplainResponse(BaseModel):
    """A similarity, taken apart."""

    model: str = Field(examples=["default"])
    metric: Metric
    similarity: float
    a: ExplainedSentence
    b: ExplainedSentence
    alignment: Alignment
    latents: ExplainedDims


class WordShare(BaseModel):
    """A word, and how much of it is in a latent class."""

    word: str
    share: float = Field(description="Of the word's tokens in the corpus, smoothed; from 0 to 1.")


class LatentResponse(BaseModel):
    """What a latent class means."""

    model: str = Field(examples=["default"])
    dim: int
    index: int = Field(description="The class.")
    usage: float = Field(description="How much of the training corpus's tokens is in it.")
    words: list[WordShare] = Field(description="The words that are most in it, first the most.")
