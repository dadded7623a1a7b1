"""How a request to the model gets from its bytes to its endpoint."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

from app.errors import ApiError
from app.routes.common import call_of


class ModelRoute(APIRoute):
    """An endpoint that takes a `body` and a `call`, and answers with a `Response`.

    FastAPI documents it and knows how its body is validated. Its general way to the arguments,
    which would look each time at what else an endpoint might take, takes as long as all the rest.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What is called for each request."""
        field, endpoint = self.body_field, self.endpoint
        assert field is not None

        async def handle(request: Request) -> Response:
            content = await request.body()
            if not content or not _is_json(request.headers):
                raise ApiError(
                    "Validation",
                    "The body should be a JSON object, sent with content-type: application/json.",
                )
            try:
                parsed = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise ApiError("Validation", "The body is not valid JSON.") from error
            body, problems = field.validate(parsed, loc=("body",))
            if problems:
                raise RequestValidationError(problems)
            response: Response = await endpoint(body=body, call=call_of(request))
            return response

        return handle


def _is_json(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
