"""Leases: one runner at a time, whatever happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service import tasks
from service.contract import RunReason
from service.store.tables import GitCommit, Run
from service.usecases.dispatch import DispatchError, abandon, order_run, protocol_of

SHA = "{:040x}"


@pytest.fixture
def order(service, repository):
    """Orders runs of new commits and returns their ids."""
    numbers = iter(range(1, 1000))

    def make(**columns) -> int:
        number = next(numbers)
        with service.sessions.begin() as session:
            commit = GitCommit(
                repository_id=repository.id, sha=SHA.format(number), parents=[], position=number, suite_tree="t",
                author="a", author_email="a@b", subject="s", committed_at=datetime(2030, 1, 1, tzinfo=UTC),
            )  # fmt: skip
            session.add(commit)
            session.flush()
            given = {"pool": "cpu", "reason": RunReason.PUSH, "dedupe_key": str(number)} | columns
            return order_run(session, repository_id=repository.id, commit_id=commit.id, **given).id

    return make


def state_of(service, run_id: int) -> Run:
    with service.sessions() as session:
        return session.get_one(Run, run_id)


def beat(service, token: str, order: dict, **changes):
    body = {"run_id": order["run_id"], "lease_token": order["lease_token"], "stage": "measure", "done": 3, "total": 9}
    return service.post(f"/api/v1/runs/{order['run_id']}/heartbeat", body | changes, token=token)


def test_ordering_twice_orders_once(service, order):
    assert order(dedupe_key="same") == order(dedupe_key="same")


def test_the_most_urgent_then_the_oldest_run_of_the_pool_is_given_out(service, order):
    low, first, second, other = order(priority=-1), order(), order(), order(pool="h200", priority=9)
    urgent = order(priority=5)
    token = service.runner()
    given = [service.claim(token)["run_id"] for _ in range(4)]
    assert given == [urgent, first, second, low]
    assert service.claim(token) is None
    assert service.claim(token, other) is None


def test_a_run_that_is_not_there_is_not_given_out(service, order):
    assert service.claim(service.runner(), 4711) is None


@pytest.mark.parametrize("wanted", ["that run", "any run"])
def test_of_many_claims_at_once_one_gets_the_run(service, order, wanted):
    run_id = order()
    tokens = [service.runner(f"runner-{index}") for index in range(8)]

    def claim(token: str):
        own = replace(service, http=service.app.test_client())
        return own.claim(token, run_id if wanted == "that run" else None)

    with ThreadPoolExecutor(8) as pool:
        orders = [given for given in pool.map(claim, tokens) if given]
    assert [given["run_id"] for given in orders] == [run_id]
    assert state_of(service, run_id).attempt == 1


def test_many_claims_at_once_share_many_runs(service, order):
    ids = {order() for _ in range(8)}
    tokens = [service.runner(f"runner-{index}") for index in range(8)]
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda token: replace(service, http=service.app.test_client()).claim(token), tokens))
    assert {item["run_id"] for item in given if item} <= ids
    assert len({item["run_id"] for item in given if item}) == len([item for item in given if item])


def test_a_heartbeat_extends_the_lease_and_notes_the_progress(service, order):
    run_id, token = order(), service.runner()
    given = service.claim(token)
    service.clock.advance(60)
    assert beat(service, token, given).json == {"hold": True}
    service.clock.advance(60)
    tasks.expire_leases(service.parts)
    run = state_of(service, run_id)
    assert (run.state, run.stage, run.done, run.total) == ("measuring", "measure", 3, 9)


def test_a_silent_runner_loses_the_run_and_another_gets_it(service, order):
    run_id, lost, other = order(), service.runner("lost"), service.runner("other")
    first = service.claim(lost)
    service.bell.rung.clear()
    service.clock.advance(91)
    tasks.expire_leases(service.parts)
    assert service.bell.rung == [("cpu", run_id)]
    second = service.claim(other)
    assert (second["run_id"], second["attempt"]) == (run_id, 2)
    assert second["lease_token"] != first["lease_token"]
    assert beat(service, lost, first).json == {"hold": False}
    assert beat(service, other, second).json == {"hold": True}


def test_a_lease_that_ran_out_but_was_not_taken_is_taken_back_by_a_heartbeat(service, order):
    run_id, token = order(), service.runner()
    given = service.claim(token)
    service.clock.advance(91)
    tasks.expire_leases(service.parts)
    assert state_of(service, run_id).state == "queued"
    assert beat(service, token, given).json == {"hold": True}
    assert state_of(service, run_id).state == "leased"
    assert service.claim(service.runner("other")) is None


def test_after_three_lost_leases_the_run_fails_with_the_reason(service, order):
    run_id, token = order(), service.runner()
    for _ in range(3):
        given = service.claim(token)
        beat(service, token, given, stage="build")
        service.clock.advance(91)
        tasks.expire_leases(service.parts)
    run = state_of(service, run_id)
    assert (run.state, run.attempt, run.failure_stage, run.failure_kind) == ("failed", 3, "lease", "transient")
    assert "fell silent" in run.failure_reason
    assert "'build'" in run.failure_reason
    assert "3 of 3" in run.failure_reason
    assert service.claim(token) is None
    assert service.bell.tasks[-1] == ("service.after_report", {"run_id": run_id})


def test_two_beats_at_once_take_a_run_back_once(service, order):
    run_id, token = order(), service.runner()
    service.claim(token)
    service.clock.advance(91)
    service.bell.rung.clear()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: tasks.expire_leases(service.parts), range(4)))
    assert service.bell.rung == [("cpu", run_id)]


def test_a_waiting_run_is_rung_for_again_once_per_pool(service, order):
    order(priority=-1)
    urgent, other = order(priority=3), order(pool="h200")
    with service.sessions() as session:
        service.clock.now = session.get_one(Run, urgent).created_at
    service.bell.rung.clear()
    tasks.ring_queued(service.parts)
    assert service.bell.rung == []
    service.clock.advance(30)
    tasks.ring_queued(service.parts)
    assert sorted(service.bell.rung) == [("cpu", urgent), ("h200", other)]


def test_an_abandoned_run_is_taken_from_its_runner(service, order):
    run_id, token = order(), service.runner()
    given = service.claim(token)
    with service.sessions.begin() as session:
        assert abandon(session, run_id=run_id, actor="ada", why="not needed", now=service.clock())
    assert beat(service, token, given).json == {"hold": False}
    with service.sessions.begin() as session:
        assert not abandon(session, run_id=run_id, actor="ada", why="again", now=service.clock())


def test_an_order_says_what_the_repository_and_the_run_say(service, repository, order):
    from service.store.tables import Repository

    with service.sessions.begin() as session:
        stored = session.get_one(Repository, repository.id)
        stored.settings = {"protocol": {"processes": 7, "blocks": 2, "gone": 1}}
        stored.build_command, stored.watched_paths, stored.time_limit_s = "make", ["flags"], 99.0
    partner = order()
    order(protocol={"processes": 9}, partner_shas=(SHA.format(1),), workload_keys=("w",), priority=1)
    given = service.claim(service.runner())
    assert partner
    assert (given["protocol"]["processes"], given["protocol"]["blocks"]) == (9, 2)
    assert (given["partner_shas"], given["workloads"], given["tier"]) == ([SHA.format(1)], ["w"], "core")
    assert (given["build_command"], given["watched_paths"], given["time_limit_s"]) == ("make", ["flags"], 99.0)


def test_a_nightly_run_asks_for_the_long_tier(service, order):
    order(reason=RunReason.NIGHTLY)
    assert service.claim(service.runner())["tier"] == "nightly"


def test_unknown_partners_and_protocol_fields_are_refused(service, order):
    with pytest.raises(DispatchError, match="not known"):
        order(partner_shas=("f" * 40,))
    with pytest.raises(DispatchError, match="'speed'"):
        order(protocol={"speed": 1})


def test_later_layers_of_a_protocol_win():
    assert protocol_of(None, {"blocks": 5}, {"blocks": 6, "nonsense": 1}).blocks == 6


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"run_id": "x"}', b'{"run_id": -1}', b'{"run_id": 99999999999999999999}', b'{"other": 1}'],
)
def test_a_claim_that_is_no_claim_is_refused_without_a_traceback(service, order, body):
    answer = service.post("/api/v1/runners/claim", body, token=service.runner())
    assert answer.status_code in (400, 422)
    assert answer.content_type == "application/problem+json"


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": "x" * 1000},
        {"stage": "\x00"},
        {"done": 2**40},
        {"done": -(2**40)},
        {"run_id": 5},
        {"lease_token": None},
    ],
)
def test_a_heartbeat_that_is_none_is_refused_without_a_traceback(service, order, changes):
    order()
    token = service.runner()
    assert beat(service, token, service.claim(token), **changes).status_code == 422
