"""Structured logs: JSON lines for machines, coloured ones for people; run and commit are bound where known."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any

import structlog

CHATTERBOXES = ("alembic", "httpx", "kombu")


class LogFormat(StrEnum):
    """How a log line looks."""

    CONSOLE = "console"
    JSON = "json"


def configure_logging(*, level: str, log_format: str) -> None:
    """Send our events and the libraries' own log records through one renderer to standard error."""
    chosen = LogFormat(log_format)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if chosen is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _flatten_exceptions if chosen is LogFormat.JSON else _leave,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in CHATTERBOXES:
        logging.getLogger(name).setLevel(logging.WARNING)


def _flatten_exceptions(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return structlog.processors.format_exc_info(logger, name, event)


def _leave(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG001
    return event
