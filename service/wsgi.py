"""The web process: `gunicorn "service.wsgi:create()"`."""

from __future__ import annotations

from flask import Flask

from service.logs import configure_logging
from service.settings import Settings
from service.web.app import create_app


def create() -> Flask:
    """The application of this process, from its environment."""
    settings = Settings()
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    return create_app(settings)
