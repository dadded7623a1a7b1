"""OpenAI's API: `GET /v1/models` and `POST /v1/embeddings`."""

from fastapi import APIRouter, Request, Response

from app.engine import ServedModel
from app.errors import ApiError, document
from app.routes.context import Context, Loaded, choose_model
from app.routes.route import NumbersRoute
from app.routes.serialize import document_model_responses, json_response, to_base64
from app.routes.vectors import VectorFormat, usage
from app.schemas.openai import EmbeddingsRequest, EmbeddingsResponse, ModelEntry, ModelList
from app.token_ids import texts_of

router = APIRouter(tags=["openai"], route_class=NumbersRoute)
models_router = APIRouter(tags=["openai"])


@models_router.head("/v1/models", include_in_schema=False)
@models_router.get(
    "/v1/models", summary="Served models", responses=document("Unauthorized", path="/v1/")
)
async def models(service: Loaded) -> ModelList:
    """List the served models, the default first."""
    return ModelList(object="list", data=[_describe(model) for model in service.models])


@models_router.get(
    "/v1/models/{model:path}",
    summary="A served model",
    responses=document("Unauthorized", "NotFound", "Validation", path="/v1/"),
)
async def model(request: Request, model: str) -> ModelEntry:
    """Describe a served model."""
    return _describe(choose_model(request, model))


def _describe(model: ServedModel) -> ModelEntry:
    manifest = model.manifest
    return ModelEntry(
        id=model.name,
        object="model",
        created=int(manifest.created.timestamp()),
        owned_by="lattemix",
        max_model_len=manifest.max_tokens,
        fingerprint=manifest.fingerprint,
    )


@router.post(
    "/v1/embeddings",
    summary="Vectors of texts, for OpenAI clients",
    response_model=EmbeddingsResponse,
    responses=document_model_responses("/v1/"),
)
async def embeddings(body: EmbeddingsRequest, context: Context) -> Response:
    """Return vectors of unit length, in the format of OpenAI's API.

    Dot products of these vectors are the model's recommended metric.
    """
    vector_format = VectorFormat.of(context.model, body)
    if body.encoding_format == "base64" and body.dtype != "float32":
        raise ApiError(
            "Validation",
            f"dtype: clients read base64 as float32, not {body.dtype}: send "
            '"encoding_format": "float".',
            field="dtype",
        )
    texts = await _texts(body, context)
    encoding = await context.encode("input", texts, lambda i: f"input[{i}]", body)

    def respond() -> Response:
        content = {
            "object": "list",
            **context.model.identity,
            "usage": usage(context.model, encoding),
        }
        data = (
            [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": to_base64(row) if body.encoding_format == "base64" else row,
                }
            ]
            for index, row in enumerate(vector_format(encoding.mixtures))
        )
        return json_response(content, data=data)

    return await context.compute(respond)


async def _texts(body: EmbeddingsRequest, context: Context) -> list[str]:
    rows = body.input
    context.check_count("input", rows)
    texts = [row for row in rows if isinstance(row, str)]
    ids = [row for row in rows if not isinstance(row, str)]
    if not ids:
        return texts
    tokenizer = context.model.engine.encoder.tokenizer
    return await context.off_loop(lambda: texts_of(ids, tokenizer))
