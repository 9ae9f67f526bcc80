"""The dashboard inside the real app: a token of the settings signs in, and a decision reaches the database."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store import tables as t
from tests.integration.dashboards.conftest import token_in


def test_a_decision_on_the_page_changes_the_regression_and_leaves_a_line_in_the_log(service, settings, built, engine):
    http = service.http
    page = f"/regressions/{built.gemm.id}"
    sign_in = {
        "csrf": token_in(http.get("/sign-in").text),
        "token": settings.admin_token.get_secret_value(),
        "next": page,
    }
    assert http.post("/sign-in", data=sign_in).headers["Location"] == page
    form = {
        "csrf": token_in(http.get(page).text),
        "regression_id": built.gemm.id,
        "action": "acknowledged",
        "next": page,
    }
    http.post("/regressions/triage", data=form)
    with Session(engine) as session:
        assert session.get_one(t.Regression, built.gemm.id).state == "acknowledged"
        line = session.scalars(select(t.AuditEvent).where(t.AuditEvent.subject_id == built.gemm.id)).one()
        assert (line.actor, line.action) == ("admin", "regression.acknowledged")
    assert "regression.acknowledged" in http.get(page).text


def test_cancelling_a_search_on_the_page_stops_it(service, settings, built, engine):
    http = service.http
    page = f"/regressions/{built.moe.id}"
    http.post(
        "/sign-in", data={"csrf": token_in(http.get("/sign-in").text), "token": settings.admin_token.get_secret_value()}
    )
    http.post(f"{page}/bisection", data={"csrf": token_in(http.get(page).text), "action": "cancel"})
    with Session(engine) as session:
        states = session.scalars(select(t.Bisection.state).where(t.Bisection.regression_id == built.moe.id)).all()
    assert states == ["cancelled"]
