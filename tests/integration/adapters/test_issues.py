"""One issue per regression, over HTTP: opened, commented, closed, and never twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.adapters.issues import GitHubIssueSender, GitLabIssueSender, body_of
from service.domain.message import DeliveryError
from service.domain.states import NotificationEvent
from tests.builders_messages import ATTRIBUTED, OPENED
from tests.forge import TOKEN, TinyForge

FIXED = replace(ATTRIBUTED, key="kernelwatch-1-9", event=NotificationEvent.FIXED)
REOPENED = replace(ATTRIBUTED, key="kernelwatch-1-10", event=NotificationEvent.REOPENED)


@pytest.fixture
def forge():
    opened = TinyForge()
    yield opened
    opened.close()


@pytest.fixture(params=["github", "gitlab"])
def send(request, forge):
    sender = GitHubIssueSender() if request.param == "github" else GitLabIssueSender()
    place = {"repository": "acme/kernels"} if request.param == "github" else {"project": "acme/kernels"}

    def send(message, *, thread=None, **changes):
        return sender.send(message, config={"base_url": forge.url, "token": TOKEN, **place, **changes}, thread=thread)

    return send


def test_a_regression_is_one_issue_from_opened_to_fixed(send, forge):
    number = send(OPENED)
    assert send(ATTRIBUTED, thread=number) == number
    assert send(FIXED, thread=number) == number
    (issue,) = forge.issues
    assert issue.title == OPENED.title
    assert [("Culprit: " in text, "Fixed: " in text) for text in issue.comments] == [(True, False), (False, True)]
    assert issue.state == "closed"
    send(REOPENED, thread=number)
    assert issue.state == "open"


def test_a_sender_that_died_before_it_heard_the_answer_writes_nothing_twice(send, forge):
    number = send(OPENED)
    assert send(OPENED) == number
    for _ in range(2):
        assert send(ATTRIBUTED, thread=number) == number
    assert len(forge.issues) == 1
    assert len(forge.issues[0].comments) == 1


def test_news_without_a_thread_finds_the_issue_of_its_regression(send, forge):
    number = send(OPENED)
    assert send(ATTRIBUTED) == number
    other = replace(OPENED, key="kernelwatch-1-11", url="http://127.0.0.1:8080/regressions/4")
    assert send(other) != number


def test_there_is_no_issue_only_to_be_closed(send, forge):
    send(FIXED)
    assert forge.issues == []


@pytest.mark.parametrize(
    ("status", "headers", "transient", "wait_s"),
    [
        (503, {}, True, 0.0),
        (429, {"Retry-After": "11"}, True, 11.0),
        (403, {"Retry-After": "60"}, True, 60.0),
        (403, {"X-RateLimit-Remaining": "0"}, True, 0.0),
        (403, {}, False, 0.0),
        (404, {}, False, 0.0),
        (410, {}, False, 0.0),
        (422, {}, False, 0.0),
    ],
)
def test_refusals_are_sorted_into_passing_and_lasting(send, forge, status, headers, transient, wait_s):
    forge.refuse = (status, headers)
    with pytest.raises(DeliveryError) as caught:
        send(OPENED)
    assert (caught.value.transient, caught.value.retry_after_s) == (transient, wait_s)


def test_a_wrong_token_is_a_lasting_error_and_a_forge_that_is_away_a_passing_one(send):
    with pytest.raises(DeliveryError, match="401") as refused:
        send(OPENED, token="wrong")
    assert not refused.value.transient
    with pytest.raises(DeliveryError) as away:
        send(OPENED, base_url="http://127.0.0.1:1")
    assert away.value.transient


def test_what_people_wrote_neither_calls_nor_links_anybody():
    hostile = replace(ATTRIBUTED.culprit, subject="ping @everyone `rm` <img src=x> #1\n\n# big")
    text = body_of(replace(ATTRIBUTED, culprit=hostile), mention="@cy")
    (line,) = (line for line in text.splitlines() if "@everyone" in line)
    assert "`ping @everyone 'rm' <img src=x> #1 # big`" in line
    assert "- Owner: @cy" in text
