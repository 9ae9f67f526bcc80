"""A site over this test's own database, and doors that remember who knocked."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field

import pytest
from flask import Flask
from sqlalchemy import event, text
from sqlalchemy.orm import Session

from dashboards.desk import RefusedError, TriageOutcome, TriageRequest
from dashboards.views import create_blueprint
from service.store.engine import make_engine
from service.store.pages import Pages
from tests import builders_pages as builders

_numbers = itertools.count()
TOKEN = "a-token-that-may-write"


@dataclass
class Doors:
    """Stands in for the use cases: remembers every request, refuses what a test tells it to."""

    triaged: list[TriageRequest] = field(default_factory=list)
    steered: list[tuple[int, str, str, float | None]] = field(default_factory=list)
    retried: list[tuple[int, str]] = field(default_factory=list)
    refuse: str | None = None

    def retry(self, *, notification_id: int, actor: str) -> None:
        if self.refuse:
            raise RefusedError(self.refuse)
        self.retried.append((notification_id, actor))

    def test(self, *, channel_id: int, actor: str) -> str:
        if self.refuse:
            raise RefusedError(self.refuse)
        return f"channel {channel_id}"

    def triage(self, request: TriageRequest) -> TriageOutcome:
        self.triaged.append(request)
        if self.refuse:
            return TriageOutcome(moved=0, refused=dict.fromkeys(request.regression_ids, self.refuse))
        return TriageOutcome(moved=len(request.regression_ids), refused={})

    def steer(self, *, regression_id: int, action: str, actor: str, budget_s: float | None = None) -> None:
        if self.refuse:
            raise RefusedError(self.refuse)
        self.steered.append((regression_id, action, actor, budget_s))


@pytest.fixture
def doors() -> Doors:
    return Doors()


def make_app(engine, **more) -> Flask:
    app = Flask("test-site")
    app.testing = True
    app.register_blueprint(create_blueprint(Pages(engine), now=lambda: builders.NOW, **more))
    return app


@pytest.fixture
def app(engine, doors) -> Flask:
    app = make_app(
        engine,
        sign_in=lambda token: "ada" if token == TOKEN else None,
        triage=doors.triage,
        steer=doors.steer,
        post=doors,
        catcher_url="http://127.0.0.1:1/caught",
    )
    app.secret_key = "only-for-tests"
    return app


@pytest.fixture
def read_only_app(engine) -> Flask:
    return make_app(engine)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture(scope="session")
def _history(_admin_engine, _template):
    """The built history in a database of its own, made once; each test gets a copy of it."""
    name = f"{_template}_history"
    with _admin_engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {_template}"))
    engine = make_engine(_admin_engine.url.set(database=name).render_as_string(hide_password=False))
    with Session(engine, expire_on_commit=False) as session:
        built = builders.history(session)
    engine.dispose()
    return name, built


@pytest.fixture
def database_url(request, _admin_engine, _template):
    """A copy of the history for tests that ask for `built`, of the empty schema for the others."""
    source = request.getfixturevalue("_history")[0] if "built" in request.fixturenames else _template
    name = f"dashboards_{os.getpid()}_{next(_numbers)}"
    with _admin_engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy"))
    yield _admin_engine.url.set(database=name).render_as_string(hide_password=False)
    with _admin_engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} (FORCE)"))


@pytest.fixture
def built(_history, engine) -> builders.History:  # the rows are in the engine's database
    return _history[1]


def token_in(html: str) -> str:
    return re.search(r'name="csrf" value="([^"]+)"', html).group(1)


@pytest.fixture
def signed_in(client):
    csrf = token_in(client.get("/sign-in").text)
    answer = client.post("/sign-in", data={"csrf": csrf, "token": TOKEN, "next": "/"})
    assert answer.status_code == 303
    return client


@pytest.fixture
def statements(engine):
    """Every SQL statement that the engine runs."""
    seen: list[str] = []

    def note(_connection, _cursor, statement, *_rest):
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)
