import os
from dataclasses import replace

import pytest

from runners.client import ReportOutcome, ServiceAwayError, ServiceRefusedError, load_report
from runners.spool import Spool
from service.contract import (
    CONTRACT_VERSION,
    CommitFailure,
    FailureKind,
    FailureStage,
    RunFailure,
    RunReport,
)

FAILURE = RunFailure(FailureStage.CHECKOUT, FailureKind.PERMANENT, "no such commit")


def report(run_id=1, attempt=1, **more) -> RunReport:
    return RunReport(
        contract_version=CONTRACT_VERSION,
        run_id=run_id,
        attempt=attempt,
        lease_token="lease",
        started_at=1.0,
        finished_at=2.0,
        device_s=0.5,
        harness_epoch=1,
        environment=None,
        **({"failure": FAILURE} | more),
    )


class Receiver:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.bodies = []

    def report(self, run_id, body):
        self.bodies.append((run_id, load_report(body)))
        answer = self.answers.pop(0) if self.answers else ReportOutcome.STORED
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def spool(tmp_path):
    ticks = iter(range(1, 1000))
    return Spool(tmp_path / "spool", now=lambda: float(next(ticks)))


def test_reports_are_sent_in_the_order_they_were_made_and_leave_the_disk(spool):
    for run_id in (30, 4, 100):
        spool.put(report(run_id))
    receiver = Receiver()
    assert spool.flush(receiver)
    assert [run_id for run_id, _ in receiver.bodies] == [30, 4, 100]
    assert spool.waiting() == []


def test_a_report_survives_the_process_that_wrote_it(spool, tmp_path):
    original = report(7)
    spool.put(original)
    receiver = Receiver()
    Spool(tmp_path / "spool").flush(receiver)
    assert receiver.bodies == [(7, original)]


def test_the_same_attempt_twice_is_kept_once_and_the_newer_content_wins(spool):
    spool.put(report(1))
    spool.put(replace(report(1), finished_at=9.0))
    spool.put(report(1, attempt=2))
    receiver = Receiver()
    spool.flush(receiver)
    assert [(body.attempt, body.finished_at) for _, body in receiver.bodies] == [(1, 9.0), (2, 2.0)]


def test_while_the_service_is_away_everything_waits_in_order(spool):
    spool.put(report(1))
    spool.put(report(2))
    away = Receiver(ReportOutcome.STORED, ServiceAwayError("no connection"))
    assert not spool.flush(away)
    assert [waiting.run_id for waiting in spool.waiting()] == [2]
    assert spool.flush(Receiver())


@pytest.mark.parametrize("outcome", [ReportOutcome.ALREADY_STORED, ReportOutcome.SUPERSEDED])
def test_a_report_that_is_stored_or_superseded_is_forgotten(spool, outcome):
    spool.put(report())
    assert spool.flush(Receiver(outcome))
    assert spool.waiting() == []


def test_a_report_that_cannot_be_stored_is_replaced_by_its_reason(spool):
    spool.put(report(failure=None, commit_failures=(CommitFailure("a" * 40, FAILURE),)))
    receiver = Receiver(ServiceRefusedError(422, "measurements[0].value_s is not finite"))
    assert spool.flush(receiver)
    _, sent = receiver.bodies[-1]
    assert sent.failure.kind is FailureKind.BUG
    assert "value_s is not finite" in sent.failure.reason
    assert sent.commit_failures == ()
    assert spool.waiting() == []


def test_a_bare_failure_that_is_refused_is_dropped_so_that_the_others_get_through(spool):
    spool.put(report(1))
    spool.put(report(2))
    receiver = Receiver(ServiceRefusedError(422, "no"))
    assert spool.flush(receiver)
    assert [run_id for run_id, _ in receiver.bodies] == [1, 2]


def test_a_runner_that_is_not_let_in_keeps_its_reports(spool):
    spool.put(report())
    assert not spool.flush(Receiver(ServiceRefusedError(401, "unknown token")))
    assert len(spool.waiting()) == 1


def test_a_draft_of_a_crash_is_never_sent(spool, tmp_path):
    (tmp_path / "spool" / f"00000000000000001-1-1.{os.getpid()}.draft").write_bytes(b'{"half')
    receiver = Receiver()
    assert spool.flush(receiver)
    assert receiver.bodies == []


def test_the_folder_is_closed_to_others(spool, tmp_path):
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0
