"""What people may do on the site, and what nobody may do without a token."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from dashboards.desk import TriageAction
from tests import builders_pages as builders
from tests.integration.dashboards.conftest import TOKEN, token_in

WRITES = (
    "/regressions/triage",
    "/regressions/1/bisection",
    "/messages/1/retry",
    "/channels/1/test",
    "/sign-out",
    "/sign-in",
)


@pytest.mark.parametrize("path", WRITES)
def test_a_write_without_the_form_s_token_is_refused(client, built, doors, path):
    assert client.post(path, data={"action": "fixed", "regression_id": "1", "token": TOKEN}).status_code == 403
    assert doors.triaged == []
    assert doors.steered == []


@pytest.mark.parametrize("path", [path for path in WRITES if "sign" not in path])
def test_a_write_without_a_person_is_refused(client, built, doors, path):
    csrf = token_in(client.get("/sign-in").text)
    answer = client.post(path, data={"csrf": csrf, "action": "acknowledged", "regression_id": "1"})
    assert answer.status_code == 403
    assert doors.triaged == []


def test_a_wrong_token_does_not_sign_in(client):
    csrf = token_in(client.get("/sign-in").text)
    assert client.post("/sign-in", data={"csrf": csrf, "token": "guess"}).status_code == 403
    assert "sign out" not in client.get("/").text


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_never_leads_to_another_site(client, target):
    csrf = token_in(client.get("/sign-in").text)
    answer = client.post("/sign-in", data={"csrf": csrf, "token": TOKEN, "next": target})
    assert answer.headers["Location"] == "/"


def test_signing_in_leads_back_to_the_page(client):
    csrf = token_in(client.get("/sign-in?next=/regressions/3").text)
    answer = client.post("/sign-in", data={"csrf": csrf, "token": TOKEN, "next": "/regressions/3"})
    assert answer.headers["Location"] == "/regressions/3"


def test_a_decision_reaches_the_use_case_with_its_actor_and_reason(signed_in, built, doors):
    page = f"/regressions/{built.gemm.id}"
    form = {"csrf": token_in(signed_in.get(page).text), "regression_id": built.gemm.id, "action": "expected",
            "reason": "needed for accuracy", "assignee": "wen", "expires_days": "30", "next": page}  # fmt: skip
    answer = signed_in.post("/regressions/triage", data=form)
    assert answer.headers["Location"] == page
    request = doors.triaged[0]
    assert request.regression_ids == (built.gemm.id,)
    assert request.action is TriageAction.EXPECTED
    assert (request.actor, request.reason, request.assignee) == ("ada", "needed for accuracy", "wen")
    assert request.expires_at == builders.NOW + timedelta(days=30)
    assert "1 regression: expected." in signed_in.get(page).text


def test_who_expects_a_change_owns_it_for_a_month_unless_the_form_says_otherwise(signed_in, built, doors):
    csrf = token_in(signed_in.get("/regressions").text)
    form = {
        "csrf": csrf,
        "regression_id": ["1", "2"],
        "action": "expected",
        "reason": "new algorithm",
        "expires_days": "",
    }
    signed_in.post("/regressions/triage", data=form)
    assert doors.triaged[0].assignee == "ada"
    assert doors.triaged[0].expires_at == builders.NOW + timedelta(days=30)


def test_five_hundred_are_moved_in_one_call(signed_in, built, doors):
    csrf = token_in(signed_in.get("/regressions").text)
    form = {"csrf": csrf, "regression_id": [str(i) for i in range(1, 501)], "action": "acknowledged"}
    signed_in.post("/regressions/triage", data=form)
    assert len(doors.triaged) == 1
    assert len(doors.triaged[0].regression_ids) == 500


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"action": "acknowledged"}, "Choose at least one regression."),
        ({"regression_id": "1", "action": "explode"}, "Choose what to do"),
        ({"regression_id": "1", "action": "not_real"}, "Say why"),
        ({"regression_id": "1", "action": "expected", "reason": "  "}, "Say why"),
    ],
)
def test_an_incomplete_decision_comes_back_with_a_sentence(signed_in, built, doors, form, sentence):
    csrf = token_in(signed_in.get("/regressions").text)
    answer = signed_in.post(
        "/regressions/triage", data={"csrf": csrf, "next": "/regressions", **form}, follow_redirects=True
    )
    assert sentence in answer.text
    assert doors.triaged == []


def test_a_refused_decision_shows_the_reason(signed_in, built, doors):
    doors.refuse = "a regression that is fixed cannot become acknowledged"
    csrf = token_in(signed_in.get("/regressions").text)
    form = {"csrf": csrf, "regression_id": "1", "action": "acknowledged", "next": "/regressions"}
    answer = signed_in.post("/regressions/triage", data=form, follow_redirects=True)
    assert "#1 stays as it is: a regression that is fixed cannot become acknowledged." in answer.text


def test_only_moves_that_the_state_allows_are_offered(signed_in, built, engine):
    page = signed_in.get(f"/regressions/{built.gemm.id}").text
    assert 'value="acknowledged">' in page
    assert 'value="fixed">' in page
    from sqlalchemy import update
    from sqlalchemy.orm import Session

    from service.store import tables as t

    with Session(engine) as session:
        session.execute(update(t.Regression).values(state="fixed"))
        session.commit()
    assert 'name="action" value="acknowledged"' not in signed_in.get(f"/regressions/{built.gemm.id}").text


def test_a_running_search_can_be_paused_and_a_finished_one_repeated(signed_in, built, doors):
    for regression, action in ((built.moe, "pause"), (built.gemm, "rerun")):
        html = signed_in.get(f"/regressions/{regression.id}").text
        assert f'name="action" value="{action}"' in html
        signed_in.post(
            f"/regressions/{regression.id}/bisection",
            data={"csrf": token_in(html), "action": action, "budget_s": "300"},
        )
    assert doors.steered == [(built.moe.id, "pause", "ada", None), (built.gemm.id, "rerun", "ada", 300.0)]


def test_signing_out_ends_the_session(signed_in):
    signed_in.post("/sign-out", data={"csrf": token_in(signed_in.get("/").text)})
    assert "sign out" not in signed_in.get("/").text


def test_a_read_only_site_offers_nothing_and_takes_nothing(read_only_app, built):
    client = read_only_app.test_client()
    for path in ("/", "/regressions", f"/regressions/{built.gemm.id}"):
        html = client.get(path).text
        assert "Sign in" not in html
        assert 'method="post"' not in html
    assert client.get("/sign-in").status_code == 404
    assert client.post("/regressions/triage", data={"regression_id": "1", "action": "fixed"}).status_code == 403


def test_a_failed_message_is_tried_again_from_its_page(signed_in, built, doors):
    page = signed_in.get("/messages?state=failed").text
    retries = re.findall(r'action="(/messages/(\d+)/retry)"', page)
    assert retries
    path, number = retries[0]
    answer = signed_in.post(path, data={"csrf": token_in(page)})
    assert answer.headers["Location"] == "/messages"
    assert doors.retried == [(int(number), "ada")]


def test_a_channel_is_tried_from_the_page_and_says_what_is_wrong(signed_in, built, doors):
    page = signed_in.get("/messages").text
    path = re.search(r'action="(/channels/\d+/test)"', page).group(1)
    assert "was accepted" in signed_in.post(path, data={"csrf": token_in(page)}, follow_redirects=True).text
    doors.refuse = "It does not work: the mail server could not be reached"
    refused = signed_in.post(path, data={"csrf": token_in(page)}, follow_redirects=True).text
    assert "could not be reached" in refused


def test_the_messages_page_shows_no_secret_and_links_to_the_catcher(client, built):
    page = client.get("/messages").text
    assert "http://127.0.0.1:1/caught" in page
    assert "Send a test" not in page  # nobody is signed in
    assert "token" not in page.lower()
