"""The page on which a policy is tried on the past and saved, inside the real app."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store import tables as t
from tests.integration.dashboards.conftest import token_in
from tests.integration.dashboards.test_pages import words_of

WISH = {"repository": "tensor-works/kernels", "min_effect": "40", "confidence": "", "workload": ""}


@pytest.fixture
def signed_in_service(service, settings):
    http = service.http
    token = settings.admin_token.get_secret_value()
    http.post("/sign-in", data={"csrf": token_in(http.get("/sign-in").text), "token": token})
    return http


def stored(engine):
    with Session(engine) as session:
        settings = session.scalars(select(t.Repository.settings)).one()
        lines = session.scalars(select(t.AuditEvent).where(t.AuditEvent.action == "policy.set")).all()
    return settings, lines


def test_a_policy_is_tried_on_the_past_then_saved_with_a_line_in_the_log(signed_in_service, built, engine):
    shown = signed_in_service.get("/policy", query_string=WISH)
    page = words_of(shown.text)
    assert "0 confirmed changes kept 9 lost" in page
    assert "Use a 4-row register tile for ragged edges" in page
    assert stored(engine) == ({}, [])
    answer = signed_in_service.post("/policy", data={**WISH, "csrf": token_in(shown.text)}, follow_redirects=True)
    assert "40.0 %" in words_of(answer.text)
    settings, (line,) = stored(engine)
    assert settings == {"detection": {"min_effect": 0.4}}
    assert (line.actor, line.after) == ("admin", {"min_effect": 0.4})


def test_nothing_is_saved_without_a_person_and_a_form_of_this_site(service, signed_in_service, built, engine):
    assert signed_in_service.post("/policy", data=WISH).status_code == 403
    stranger = service.http.application.test_client()
    assert stranger.post("/policy", data=WISH).status_code == 403
    page = stranger.get("/policy", query_string=WISH).text
    assert "Sign in" in page
    assert "Save this policy" not in page
    assert stored(engine) == ({}, [])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"min_effect": "90"}, "at most 0.5"), ({"min_effect": "x"}, "number in percent"), ({"min_effect": ""}, "name a"),
     ({"repository": "nobody/none"}, "no repository")],
)  # fmt: skip
def test_a_wish_that_means_nothing_is_refused_with_a_sentence(signed_in_service, built, change, sentence):
    page = signed_in_service.get("/policy", query_string={**WISH, **change}).text
    assert sentence in page
    assert "Save this policy" not in page
