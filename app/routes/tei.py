"""Other endpoints of text-embeddings-inference: `POST /` and `POST /tokenize`."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Discriminator, Tag

from app.routes.context import Context
from app.routes.embed import embed
from app.routes.route import ModelRoute
from app.routes.serialize import document_model_responses, json_response
from app.routes.similarity import compare_source
from app.schemas.embed import EmbedRequest
from app.schemas.similarity import SourceRequest
from app.schemas.tokenize import Token, TokenizeRequest
from lattemix.responses import EmbedResponse

router = APIRouter(tags=["text-embeddings-inference"], route_class=ModelRoute)


def _tag(body: Any) -> str:
    compares = isinstance(body, dict) and isinstance(body.get("inputs"), dict)
    return "(source)" if compares else "(texts)"


TaskRequest = Annotated[
    Annotated[EmbedRequest, Tag("(texts)")] | Annotated[SourceRequest, Tag("(source)")],
    Discriminator(_tag),
]


@router.post(
    "/",
    summary="Vectors or similarities, for Hugging Face clients with the server's URL",
    response_model=list[list[float]] | list[float] | EmbedResponse,
    responses=document_model_responses(),
)
async def task(body: TaskRequest, context: Context) -> Response:
    """Respond like `/embed` or, if `inputs` has a `source_sentence`, like `/similarity`."""
    if isinstance(body, SourceRequest):
        return await compare_source(body, context)
    return await embed(body, context)


@router.post(
    "/tokenize",
    summary="Tokens of texts",
    response_model=list[list[Token]],
    responses=document_model_responses(),
)
async def tokenize(body: TokenizeRequest, context: Context) -> Response:
    """Return all tokens of each text, before truncation."""
    context.check_texts("inputs", body.inputs, lambda i: f"inputs[{i}]")
    tokenizer = context.model.engine.encoder.tokenizer

    def respond() -> Response:
        rows = tokenizer.describe(body.inputs, body.add_special_tokens)
        return json_response(
            [
                [
                    {
                        "id": span.id,
                        "text": span.token if span.special else text[span.start : span.end],
                        "special": span.special,
                        "start": None if span.special else span.start,
                        "stop": None if span.special else span.end,
                    }
                    for span in spans
                ]
                for text, spans in zip(body.inputs, rows, strict=True)
            ]
        )

    return await context.off_loop(respond)
