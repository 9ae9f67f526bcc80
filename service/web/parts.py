"""What views share: the services of this app, and reading a request's body within bounds."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flask import Response, current_app, json, request
from pydantic import TypeAdapter, ValidationError

from service.web.errors import ProblemError
from service.wiring import Services

EXTENSION = "kernelwatch"
SMALL_BODY_BYTES = 1_000_000
WEBHOOK_BODY_BYTES = 25_000_000  # GitHub sends no more
REPORT_BODY_BYTES = 64_000_000
MAX_FAULTS = 20

Body = TypeVar("Body")


def services() -> Services:
    """The services of the app that handles this request."""
    return cast("Services", current_app.extensions[EXTENSION])


def raw_body(limit_bytes: int = SMALL_BODY_BYTES) -> bytes:
    """The request's body; 413 when it is longer than the limit, before it is read."""
    request.max_content_length = limit_bytes
    return request.get_data(cache=False)


def parse(adapter: TypeAdapter[Body], *, limit_bytes: int = SMALL_BODY_BYTES) -> Body:
    """The body as JSON of the adapter's type; 422 names each field that is wrong, 400 if it is no JSON at all."""
    body = raw_body(limit_bytes)
    try:
        return adapter.validate_json(body, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        if found[0]["type"] == "json_invalid":
            raise ProblemError(400, "Bad Request", f"The body is not JSON: {found[0]['msg']}") from error
        faults = [
            {"field": ".".join(map(str, item["loc"])) or "the body", "message": item["msg"]}
            for item in found[:MAX_FAULTS]
        ]
        raise refused(faults) from error


def refused(faults: list[dict[str, str]]) -> ProblemError:
    """422: the body was understood and is wrong."""
    first = f"{faults[0]['field']}: {faults[0]['message']}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return ProblemError(422, "Unprocessable Content", f"{first}{more}", errors=faults)


def as_json(body: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(json.dumps(body), status=status, content_type="application/json")
