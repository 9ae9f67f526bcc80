"""The Flask application, made from its parts; no global, no import-time side effect."""

from __future__ import annotations

import structlog
from flask import Flask

from dashboards.views import error_page
from service.settings import Settings, check_secrets
from service.web import errors, fleet_api, health, read_api, runner_api, webhooks, write_api
from service.web.dashboard import dashboard, set_cookies
from service.web.parts import EXTENSION, SMALL_BODY_BYTES
from service.wiring import Services, connect


def create_app(settings: Settings, services: Services | None = None) -> Flask:
    """The service's web side. Refuses to start with a missing or well-known secret outside the embedded mode."""
    check_secrets(settings)
    app = Flask("service.web", static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = SMALL_BODY_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]
    parts = services or connect(settings)
    app.extensions[EXTENSION] = parts
    errors.register(app, page=error_page)
    for module in (webhooks, runner_api, read_api, write_api, fleet_api, health):
        app.register_blueprint(module.blueprint)
    set_cookies(app, settings)
    app.register_blueprint(dashboard(parts))
    app.before_request(structlog.contextvars.clear_contextvars)
    return app
