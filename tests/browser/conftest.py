"""A real browser (Debian's Chromium, driven by Playwright) on a real site over a real database."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from flask import Flask
from sqlalchemy import text
from sqlalchemy.orm import Session
from werkzeug.serving import make_server

from dashboards.views import create_blueprint
from service.store.engine import make_engine
from service.store.pages import Pages
from tests import builders_pages as builders

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(
                    pytest.mark.skip(reason="no Chromium on this machine (Debian: apt-get install chromium)")
                )


@dataclass
class Site:
    """Where the site is, and what is in it."""

    url: str
    built: builders.History


@pytest.fixture(scope="session")
def site(_admin_engine, _template) -> Iterator[Site]:
    """The built history behind a threaded server on a free port."""
    name = f"{_template}_browser"
    with _admin_engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {_template}"))
    engine = make_engine(_admin_engine.url.set(database=name).render_as_string(hide_password=False))
    with Session(engine, expire_on_commit=False) as session:
        built = builders.history(session)
    app = Flask("browser-site")
    app.register_blueprint(create_blueprint(Pages(engine), now=lambda: builders.NOW))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Site(f"http://127.0.0.1:{server.port}", built)
    server.shutdown()
    thread.join()
    server.server_close()
    engine.dispose()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


@dataclass
class Watched:
    """A page with everything it asked for and complained about."""

    page: object
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser, site):
    """Open a path of the site: `visit("/", width=390, scheme="dark")`."""
    contexts = []

    def open_page(path: str, *, width: int = 1440, scheme: str = "light", **more) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        watched = Watched(page)
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on(
            "console", lambda line: watched.complaints.append(line.text) if line.type in ("error", "warning") else None
        )
        page.goto(site.url + path)
        if more.get("java_script_enabled", True):
            page.wait_for_function("[...document.querySelectorAll('.chart')].every((one) => one.dataset.drawn)")
        return watched

    yield open_page
    for context in contexts:
        context.close()
