"""What people and agents decide over the API: triage, searches, retractions; each audited, each refusal a sentence."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.store.tables import AuditEvent, Bisection, Regression, Run
from tests.story import Planted, Story

ADMIN = "test-admin-token-4f0c1d7e2a"


@pytest.fixture
def story(sessions):
    plans = [Planted()] * 14
    plans[9] = Planted({"moe": 1.15})
    told = Story(sessions, plans, seed=21)
    for tip in (2, 4, 6, 12):
        told.push(tip)
    assert told.found() == {9: "attributed"}
    return told


@pytest.fixture
def regression_id(story):
    with story.sessions() as session:
        return session.scalars(select(Regression.id)).one()


def test_one_call_decides_about_many_and_says_why_not(service, story, regression_id):
    wanted = {"ids": [regression_id, 999], "state": "acknowledged"}
    answer = service.post("/api/v1/regressions/triage", wanted, token=ADMIN)
    assert answer.json == {"moved": [regression_id], "refused": {"999": "there is no such regression"}}
    assert story.found() == {9: "acknowledged"}
    with story.sessions() as session:
        assert session.scalars(select(AuditEvent.actor).where(AuditEvent.action == "regression.acknowledged")).one()


def test_a_decision_that_lacks_its_reason_is_refused_with_what_it_lacks(service, story, regression_id):
    wanted = {"ids": [regression_id], "state": "expected"}
    answer = service.post("/api/v1/regressions/triage", wanted, token=ADMIN)
    assert answer.status_code == 422
    assert "an owner, a reason and a date of expiry" in answer.json["detail"]
    assert story.found() == {9: "attributed"}


def test_a_search_is_repeated_over_its_whole_range_with_another_budget(service, story, regression_id):
    url = f"/api/v1/regressions/{regression_id}/bisection"
    assert service.post(url, {"action": "rerun", "budget_s": 50.0}, token=ADMIN).status_code == 200
    story.work()
    with story.sessions() as session:
        first, second = session.scalars(select(Bisection).order_by(Bisection.id)).all()
        assert second.commit_shas == first.commit_shas
        assert (second.generation, second.budget_s, second.verdict) == (2, 50.0, "culprit")
    assert story.found() == {9: "attributed"}


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"action": "pause"}, "done cannot pause"),
        ({"action": "rerun", "budget_s": 1.0}, "10 to 1000000 device-seconds"),
        ({"action": "cancel", "budget_s": 90.0}, "pause a running one first"),
    ],
)
def test_what_a_search_cannot_do_is_refused_with_a_sentence(service, regression_id, wanted, sentence):
    answer = service.post(f"/api/v1/regressions/{regression_id}/bisection", wanted, token=ADMIN)
    assert answer.status_code == 409
    assert sentence in answer.json["detail"]


def test_a_retracted_run_counts_no_more_and_says_why(service, story):
    with story.sessions() as session:
        run_id = session.scalars(select(Run.id).where(Run.reason == "push").order_by(Run.id)).first()
    answer = service.post(f"/api/v1/runs/{run_id}/retract", {"reason": "the board was hot"}, token=ADMIN)
    assert answer.status_code == 200
    with story.sessions() as session:
        assert session.get_one(Run, run_id).retracted_reason == "the board was hot"
    assert service.post("/api/v1/runs/999/retract", {"reason": "x"}, token=ADMIN).status_code == 404
    assert service.post(f"/api/v1/runs/{run_id}/retract", {"reason": ""}, token=ADMIN).status_code == 422
