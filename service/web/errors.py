"""Errors: problem+json (RFC 9457) for programs, a page for browsers; a title, a status, a sentence, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from flask import Flask, Response, current_app, json, request
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException

PROBLEM_TYPE = "application/problem+json"
MACHINE_PREFIXES = ("/api/", "/webhooks/", "/healthz", "/readyz")
RETRY_AFTER_S = 5
PAGE_EXTENSION = "kernelwatch-error-page"

Page = Callable[[int, str, str], Response]  # status, title, sentence

log = structlog.get_logger(__name__)


class ProblemError(Exception):
    """Raised anywhere in a view: becomes this answer."""

    def __init__(self, status: int, title: str, detail: str, **extra: Any) -> None:
        self.status, self.title, self.detail, self.extra = status, title, detail, extra
        super().__init__(detail)


def problem(status: int, title: str, detail: str, **extra: Any) -> Response:
    """The answer itself."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **extra}
    response = Response(json.dumps(body), status=status, content_type=PROBLEM_TYPE)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="kernelwatch"'
    if status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def register(app: Flask, *, page: Page) -> None:
    """Make every error of the app an answer that a client can read; a browser gets `page`."""
    app.extensions[PAGE_EXTENSION] = page
    app.register_error_handler(ProblemError, _of_problem)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(OperationalError, _of_database)
    app.register_error_handler(Exception, _of_bug)


def _of_problem(error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.title, error.detail, **error.extra)


def _of_http(error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.code or 500
    if status < 400:
        redirect = error.get_response()
        return Response(redirect.get_data(), status=status, headers=redirect.headers)
    answer = _answer(status, error.name, error.description or error.name)
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        answer.headers["Allow"] = ", ".join(sorted(allowed))
    return answer


def _of_database(error: Exception) -> Response:
    log.error("database_unavailable", path=request.path, error=str(getattr(error, "orig", error)))
    return _answer(503, "Service Unavailable", "The database does not answer. Try again in a moment.")


def _of_bug(error: Exception) -> Response:
    log.error("request_failed", path=request.path, method=request.method, exc_info=error)
    return _answer(500, "Internal Server Error", "Something is broken here; the service's log has the details.")


def _answer(status: int, title: str, detail: str) -> Response:
    if f"{request.path}/".startswith(MACHINE_PREFIXES):
        return problem(status, title, detail)
    if request.accept_mimetypes.best_match(["text/plain", "text/html"]) == "text/html":
        page: Page = current_app.extensions[PAGE_EXTENSION]
        return page(status, title, detail)
    return Response(f"{title}: {detail}\n", status=status, content_type="text/plain; charset=utf-8")
