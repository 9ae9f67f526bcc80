"""Handing in reports: once, whole, believed only when believable."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from service import tasks
from service.store.tables import Benchmark, Environment, GitCommit, Measurement, Run, Series, Workload

ZERO = "0" * 40
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def token(service) -> str:
    return service.runner()


@pytest.fixture
def push(service, repository, git_repo):
    """Pushes one more kernel commit and returns its sha."""
    numbers = iter(range(1000))

    def go() -> str:
        before = git_repo.head() if next(numbers) else ZERO
        sha = git_repo.kernel(f"version {next(numbers)}")
        assert service.push(repository, before, sha, guid=sha).status_code == 202
        return sha

    return go


@pytest.fixture
def order(service, push, token):
    """Pushes a commit and claims its run."""

    def go() -> dict:
        push()
        return service.claim(token)

    return go


def count(service, table) -> int:
    with service.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def run_of(service, order: dict) -> Run:
    with service.sessions() as session:
        return session.get_one(Run, order["run_id"])


# -- once -----------------------------------------------------------------------------------------------------------


def test_eight_copies_at_once_are_stored_once(service, order, token, make_report):
    given = order()
    report = make_report(given)

    def hand_in(_: int) -> int:
        return replace(service, http=service.app.test_client()).report(token, report).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(hand_in, range(8)))
    assert codes == [200] * 7 + [201]
    assert count(service, Measurement) == 1


def test_a_report_of_a_superseded_attempt_is_refused_and_the_new_one_taken(service, order, token, make_report):
    first = order()
    service.clock.advance(91)
    tasks.expire_leases(service.parts)
    second = service.claim(token)
    assert service.report(token, make_report(first)).status_code == 409
    assert count(service, Measurement) == 0
    assert service.report(token, make_report(second)).status_code == 201
    assert service.report(token, make_report(first)).status_code == 409


@pytest.mark.parametrize("beaten", ["before the beat", "after the beat"])
def test_a_late_report_is_taken_while_nobody_else_has_the_run(service, order, token, make_report, beaten):
    given = order()
    service.clock.advance(1000)
    if beaten == "after the beat":
        tasks.expire_leases(service.parts)
        assert run_of(service, given).state == "queued"
    assert service.report(token, make_report(given)).status_code == 201
    assert run_of(service, given).state == "reported"
    assert service.claim(token) is None


def test_a_report_of_a_run_that_has_failed_for_good_is_refused(service, order, token, make_report):
    given = order()
    for _ in range(3):
        service.clock.advance(91)
        tasks.expire_leases(service.parts)
        given = service.claim(token) or given
    assert run_of(service, given).state == "failed"
    assert service.report(token, make_report(given)).status_code == 409


@pytest.mark.parametrize("changes", [{"lease_token": "guessed"}, {"attempt": 2}, {"attempt": 0}])
def test_a_report_that_does_not_hold_the_lease_is_refused(service, order, token, make_report, changes):
    assert service.report(token, make_report(order(), **changes)).status_code == 409


def test_another_runner_cannot_report_a_run(service, order, make_report):
    assert service.report(service.runner("other"), make_report(order())).status_code == 409


def test_an_unknown_run_is_not_found(service, order, token, make_report):
    assert service.report(token, make_report(order(), run_id=4711)).status_code == 404


def test_what_follows_is_asked_for_only_after_the_report_is_committed(service, order, token, make_report, monkeypatch):
    seen = []
    given = order()
    monkeypatch.setattr(type(service.bell), "later", lambda *_, **__: seen.append(run_of(service, given).state))
    service.report(token, make_report(given))
    assert seen == ["reported"]


def test_a_report_whose_follow_up_was_lost_is_found_by_the_beat(service, order, token, make_report):
    given = order()
    service.report(token, make_report(given))
    service.bell.tasks.clear()  # the message is lost
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == []
    service.clock.advance(60)
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == [("service.after_report", {"run_id": given["run_id"]})]
    tasks.after_report(service.parts, run_id=given["run_id"])
    service.bell.tasks.clear()
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == []


# -- whole ----------------------------------------------------------------------------------------------------------


def test_a_report_that_breaks_off_leaves_nothing_behind(service, order, token, make_report, monkeypatch):
    from service.usecases import ingest

    def die(*_):
        raise RuntimeError("the power went out")

    given = order()
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "copy_measurements", die)
        answer = service.report(token, make_report(given))
    assert answer.status_code == 500
    assert "power" not in answer.text
    assert [count(service, table) for table in (Benchmark, Workload, Series, Environment, Measurement)] == [0] * 5
    assert run_of(service, given).state == "leased"
    assert service.report(token, make_report(given)).status_code == 201


def test_partners_are_stored_at_their_own_commits(service, repository, push, token, make_report, make_measurement):
    from service.contract import RunReason
    from service.store import commits
    from service.usecases.dispatch import order_run

    good, bad = push(), push()
    with service.sessions.begin() as session:
        order_run(
            session, repository_id=repository.id, pool="cpu", reason=RunReason.CONFIRM, dedupe_key="c", priority=9,
            commit_id=commits.by_sha(session, repository_id=repository.id, sha=bad).id, partner_shas=(good,),
        )  # fmt: skip
    given = service.claim(token)
    assert given["partner_shas"] == [good]
    report = make_report(given, measurements=[make_measurement(bad), make_measurement(good)])
    assert service.report(token, report).status_code == 201
    with service.sessions() as session:
        shas = session.scalars(select(GitCommit.sha).join(Measurement, Measurement.commit_id == GitCommit.id)).all()
    assert sorted(shas) == sorted([good, bad])
    assert count(service, Series) == 1


def test_every_status_is_stored_and_only_ok_carries_a_figure(service, order, token, make_report, make_measurement):
    given = order()
    bad = {"value_s": None, "half_width_s": None, "blocks": []}
    statuses = ["wrong_result", "crashed", "timed_out", "too_noisy", "skipped"]
    measurements = [
        make_measurement(given["sha"], workload=f"w[{status}]", status=status, error=f"why {status}", **bad)
        for status in statuses
    ]
    assert service.report(token, make_report(given, measurements=measurements)).status_code == 201
    with service.sessions() as session:
        rows = session.execute(select(Measurement.status, Measurement.error, Measurement.value_s)).all()
    assert sorted(rows) == sorted((status, f"why {status}", None) for status in statuses)


def test_a_failure_is_written_with_its_reason_and_log(service, order, token, make_report):
    given = order()
    failure = {"stage": "build", "kind": "permanent", "reason": "cc: error", "log_tail": "line\x00 \ud7ff\n"}
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 201
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 200
    run = run_of(service, given)
    assert (run.state, run.failure_stage, run.failure_kind, run.failure_reason) == (
        "failed",
        "build",
        "permanent",
        "cc: error",
    )


def test_a_transient_failure_is_retried_and_the_last_one_is_final(service, order, token, make_report):
    given = order()
    failure = {"stage": "device", "kind": "transient", "reason": "device busy", "log_tail": ""}
    for attempt in (1, 2):
        assert given["attempt"] == attempt
        report = make_report(given, measurements=[], failure=failure)
        assert service.report(token, report).status_code == 201
        assert service.report(token, report).status_code == 409
        assert run_of(service, given).state == "queued"
        given = service.claim(token)
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 201
    run = run_of(service, given)
    assert (run.state, run.device_s) == ("failed", 31.5)


def test_a_commit_that_cannot_be_built_fails_the_run_with_its_own_reason(service, order, token, make_report):
    given = order()
    failure = {"stage": "build", "kind": "permanent", "reason": "no such header", "log_tail": ""}
    report = make_report(given, measurements=[], commit_failures=[{"sha": given["sha"], "failure": failure}])
    assert service.report(token, report).status_code == 201
    run = run_of(service, given)
    assert (run.state, run.failure_reason) == ("failed", "no such header")
    assert run.commit_failures == [{"sha": given["sha"], "failure": failure}]


def test_text_that_could_break_the_copy_format_comes_back_as_it_was(
    service, order, token, make_report, make_measurement
):
    given = order()
    nasty = "tab\t newline\n return\r back\\slash \\N \"quote\" 'single' {brace,comma} ünï"
    measurement = make_measurement(
        given["sha"], status="crashed", value_s=None, half_width_s=None, error=nasty, flags=['a,"b\\', "NULL", " "],
        static={"ptx": nasty, "registers": 32, "spill": 0.5},
    )  # fmt: skip
    assert service.report(token, make_report(given, measurements=[measurement])).status_code == 201
    with service.sessions() as session:
        row = session.scalars(select(Measurement)).one()
    assert (row.error, row.flags) == (nasty, ['a,"b\\', "NULL", " "])
    assert row.static_facts == {"ptx": nasty, "registers": 32, "spill": 0.5}
