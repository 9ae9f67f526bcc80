"""Who may do what: every write without the right token is refused."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from service.store.tables import ApiToken, Runner
from service.web.auth import hash_token, new_token

ADMIN = "test-admin-token-4f0c1d7e2a"
REGISTRATION = {"name": "r", "pool": "cpu", "device": "cpu:test", "comparable_key": "c", "facts": {}}


@pytest.fixture
def make_token(service):
    """Stores an API token and returns its text."""

    def make(scope: str, **columns) -> str:
        text = new_token(scope)
        with service.sessions.begin() as session:
            session.add(ApiToken(name=f"{scope}-token", token_hash=hash_token(text), scope=scope, **columns))
        return text

    return make


def write_routes(service) -> list[str]:
    rules = [rule for rule in service.app.url_map.iter_rules() if {"POST", "PUT", "PATCH", "DELETE"} & rule.methods]
    return [rule.rule for rule in rules]


def test_every_write_route_refuses_a_request_without_a_token(service):
    routes = write_routes(service)
    assert len(routes) >= 8
    for route in routes:
        path = re.sub(r"<int:\w+>", "1", route)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
            answer = service.http.post(path, json={}, headers=headers)
            refused = {400} if path.startswith("/webhooks/") else {401, 403}  # a webhook is signed, not tokened
            assert answer.status_code in refused, (path, headers, answer.status_code)


@pytest.mark.parametrize("path", ["/api/v1/runners/claim", "/api/v1/runs/1/report", "/api/v1/runs/1/heartbeat"])
def test_a_person_s_token_cannot_act_as_a_runner(service, make_token, path):
    assert service.post(path, {}, token=make_token("write")).status_code == 403


def test_a_runner_s_token_cannot_order_runs(service):
    assert service.post("/api/v1/runs", {}, token=service.runner()).status_code == 403


@pytest.mark.parametrize(
    ("scope", "columns", "status"),
    [
        ("write", {}, 422),
        ("read", {}, 403),
        ("register", {}, 403),
        ("write", {"revoked_at": "now"}, 401),
        ("write", {"expires_at": "now"}, 401),
        ("write", {"expires_at": "later"}, 422),
    ],
)
def test_only_a_valid_write_token_may_write(service, make_token, scope, columns, status):
    moments = {"now": service.clock(), "later": service.clock() + timedelta(days=1)}
    token = make_token(scope, **{name: moments[value] for name, value in columns.items()})
    assert service.post("/api/v1/runs", {}, token=token).status_code == status


def test_the_admin_token_may_order_a_run(service, repository, git_repo):
    tip = git_repo.kernel("a")
    service.push(repository, "0" * 40, tip, guid="1")
    wanted = {"repository": "ada/kernels", "sha": tip, "pool": "cpu"}
    answer = service.post("/api/v1/runs", wanted, token=ADMIN)
    assert answer.status_code == 201
    assert service.bell.rung[-1] == ("cpu", answer.json["run"])
    assert service.post("/api/v1/runs", wanted | {"pool": "tpu"}, token=ADMIN).status_code == 404
    assert service.post("/api/v1/runs", wanted | {"sha": "b" * 40}, token=ADMIN).status_code == 404


def test_a_registration_token_works_once(service, make_token):
    token = make_token("register")
    assert service.post("/api/v1/runners/register", REGISTRATION, token=token).status_code == 201
    assert service.post("/api/v1/runners/register", REGISTRATION, token=token).status_code == 409


def test_a_refused_registration_does_not_spend_the_token(service, make_token):
    token = make_token("register")
    wrong = REGISTRATION | {"pool": "no such; pool"}
    assert service.post("/api/v1/runners/register", wrong, token=token).status_code == 422
    assert service.post("/api/v1/runners/register", REGISTRATION, token=token).status_code == 201


def test_of_two_registrations_at_once_one_succeeds(service, make_token):
    token = make_token("register")

    def register(index: int) -> int:
        own = replace(service, http=service.app.test_client())
        return own.post("/api/v1/runners/register", REGISTRATION | {"name": f"r{index}"}, token=token).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(register, range(4))) == [201, 409, 409, 409]


def test_a_registration_token_of_one_pool_opens_no_other(service, make_token):
    token = make_token("register", pool="h200")
    assert service.post("/api/v1/runners/register", REGISTRATION, token=token).status_code == 403


def test_a_runner_that_registers_again_gets_a_new_token_and_the_old_one_ends(service):
    old = service.runner("r")
    new = service.runner("r")
    assert service.post("/api/v1/runners/claim", {}, token=old).status_code == 401
    assert service.post("/api/v1/runners/claim", {}, token=new).status_code == 204
    with service.sessions() as session:
        assert session.query(Runner).count() == 1


def test_the_database_holds_no_token(service):
    token = service.runner()
    with service.sessions() as session:
        runner = session.query(Runner).one()
    assert token not in (runner.token_hash, str(runner.facts))
    assert runner.token_hash == hash_token(token)


def test_the_shared_registration_token_of_the_settings_registers_many(service):
    from pydantic import SecretStr

    service.settings.runner_token = SecretStr("shared-registration-7f3b2c")
    for name in ("a", "b"):
        answer = service.post(
            "/api/v1/runners/register", REGISTRATION | {"name": name}, token="shared-registration-7f3b2c"
        )
        assert answer.status_code == 201


def test_no_answer_of_the_read_api_holds_a_secret(service, repository, git_repo):
    tip = git_repo.kernel("a")
    service.push(repository, "0" * 40, tip, guid="1")
    order = service.claim(service.runner())
    for path in ("/api/v1/repositories", "/api/v1/runs", f"/api/v1/runs/{order['run_id']}"):
        text = service.http.get(path).text
        assert repository.webhook_secret not in text
        assert order["lease_token"] not in text
