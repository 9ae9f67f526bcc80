"""A site over this test's own database, and doors that remember who knocked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from flask import Flask
from sqlalchemy import event
from sqlalchemy.orm import Session

from dashboards.desk import RefusedError, TriageOutcome, TriageRequest
from dashboards.views import create_blueprint
from service.store.pages import Pages
from tests import builders_pages as builders

TOKEN = "a-token-that-may-write"


@dataclass
class Doors:
    """Stands in for the use cases: remembers every request, refuses what a test tells it to."""

    triaged: list[TriageRequest] = field(default_factory=list)
    steered: list[tuple[int, str, str]] = field(default_factory=list)
    refuse: str | None = None

    def triage(self, request: TriageRequest) -> TriageOutcome:
        self.triaged.append(request)
        if self.refuse:
            return TriageOutcome(moved=0, refused=dict.fromkeys(request.regression_ids, self.refuse))
        return TriageOutcome(moved=len(request.regression_ids), refused={})

    def steer(self, *, regression_id: int, action: str, actor: str) -> None:
        if self.refuse:
            raise RefusedError(self.refuse)
        self.steered.append((regression_id, action, actor))


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
    )
    app.secret_key = "only-for-tests"
    return app


@pytest.fixture
def read_only_app(engine) -> Flask:
    return make_app(engine)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def built(engine) -> builders.History:
    with Session(engine, expire_on_commit=False) as session:
        return builders.history(session)


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
