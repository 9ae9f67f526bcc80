import json
import random

import httpx
import pytest

from runners.client import ReportOutcome, ServiceAwayError, ServiceClient, ServiceRefusedError
from service.contract import CONTRACT_VERSION, Heartbeat, RunnerRegistration

ORDER = {
    "contract_version": CONTRACT_VERSION,
    "run_id": 4,
    "attempt": 1,
    "lease_token": "t",
    "lease_s": 90.0,
    "repository": "acme/kernels",
    "clone_url": "https://example.org/acme/kernels",
    "suite_path": "suite",
    "sha": "a" * 40,
    "reason": "push",
}


class Script:
    """Answers in order; an exception is raised instead."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def client_of(script, waits=None):
    return ServiceClient(
        "http://service/",
        "secret",
        sleep=(waits if waits is not None else []).append,
        rng=random.Random(1),
        transport=httpx.MockTransport(script),
    )


def problem(status, detail="no"):
    return httpx.Response(status, json={"type": "about:blank", "title": "t", "status": status, "detail": detail})


def test_a_claim_carries_the_token_and_gives_an_order():
    script = Script(httpx.Response(200, json=ORDER))
    order = client_of(script).claim(4)
    assert (order.run_id, order.sha) == (4, "a" * 40)
    (request,) = script.requests
    assert request.url == "http://service/api/v1/runners/claim"
    assert request.headers["Authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"run_id": 4}


def test_nothing_to_do_is_none():
    script = Script(httpx.Response(204))
    assert client_of(script).claim(None) is None
    assert json.loads(script.requests[0].content) == {"run_id": None}


def test_a_service_that_is_away_for_a_moment_is_asked_again_with_growing_waits():
    script = Script(httpx.ConnectError("refused"), problem(503), problem(429), httpx.Response(204))
    waits = []
    assert client_of(script, waits).claim(None) is None
    assert len(waits) == 3
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0 <= waits[2] <= 2.0


def test_a_service_that_stays_away_is_said_to_be():
    script = Script(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(ServiceAwayError, match="no connection to http://service"):
        client_of(script).claim(None)


def test_a_refusal_is_not_tried_again_and_says_why():
    script = Script(problem(403, "this runner is in quarantine"))
    with pytest.raises(ServiceRefusedError, match="403: this runner is in quarantine"):
        client_of(script).claim(None)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [(ORDER | {"contract_version": CONTRACT_VERSION + 1}, "update it"), ({"run_id": 4}, "does not fit the contract")],
)
def test_an_order_that_is_not_understood_is_refused(body, sentence):
    with pytest.raises(ServiceRefusedError, match=sentence):
        client_of(Script(httpx.Response(200, json=body))).claim(None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(201, ReportOutcome.STORED), (200, ReportOutcome.ALREADY_STORED), (409, ReportOutcome.SUPERSEDED)],
)
def test_what_became_of_a_report(status, outcome):
    script = Script(problem(status))
    assert client_of(script).report(12, b"{}") is outcome
    assert script.requests[0].url.path == "/api/v1/runs/12/report"


@pytest.mark.parametrize("hold", [True, False])
def test_a_heartbeat_says_whether_the_run_is_still_ours(hold):
    script = Script(httpx.Response(200, json={"hold": hold}))
    assert client_of(script).heartbeat(Heartbeat(3, "t", "measure", 1, 5)) is hold


def test_a_heartbeat_is_not_repeated_the_next_one_comes_anyway():
    script = Script(httpx.ConnectError("refused"))
    with pytest.raises(ServiceAwayError):
        client_of(script).heartbeat(Heartbeat(3, "t", "measure"))


def test_registering_trades_the_token():
    script = Script(httpx.Response(201, json={"runner_id": 9, "token": "own"}))
    identity = client_of(script).register(RunnerRegistration("r1", "cpu", "cpu:x", "key", {}))
    assert (identity.runner_id, identity.token) == (9, "own")


def test_an_address_that_is_not_the_service_is_named():
    with pytest.raises(ServiceAwayError, match="is the address right"):
        client_of(Script(httpx.Response(200, text="<html>"))).heartbeat(Heartbeat(3, "t", "measure"))
