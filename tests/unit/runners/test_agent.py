"""The agent's loop with a scripted service and scripted work."""

import threading
from dataclasses import replace

import pytest

from runners.agent import Agent, Outcome
from runners.checkout import CheckoutError
from runners.client import ReportOutcome, ServiceAwayError, ServiceRefusedError, load_report
from runners.harness import HarnessChangedError
from runners.measure.session import HoldLostError
from runners.spool import Spool
from service.contract import (
    CONTRACT_VERSION,
    CommitFailure,
    FailureKind,
    FailureStage,
    RunFailure,
    RunOrder,
    RunReason,
    RunReport,
)

FAILURE = RunFailure(FailureStage.BUILD, FailureKind.PERMANENT, "does not compile")


def order(run_id: int) -> RunOrder:
    return RunOrder(
        contract_version=CONTRACT_VERSION,
        run_id=run_id,
        attempt=1,
        lease_token=f"lease-{run_id}",
        lease_s=0.2,
        repository="acme/kernels",
        clone_url="/nowhere",
        suite_path="suite",
        sha="a" * 40,
        reason=RunReason.PUSH,
    )


class FakeService:
    def __init__(self, *run_ids):
        self.queued = [order(run_id) for run_id in run_ids]
        self.asked = []
        self.reports = []
        self.beats = []
        self.held = True
        self.trouble = None
        self.beaten = threading.Event()

    def claim(self, run_id):
        self.asked.append(run_id)
        if self.trouble:
            raise self.trouble
        for queued in self.queued:
            if run_id in {None, queued.run_id}:
                self.queued.remove(queued)
                return queued
        return None

    def heartbeat(self, beat):
        self.beats.append(beat)
        self.beaten.set()
        return self.held

    def report(self, run_id, body):
        if self.trouble:
            raise self.trouble
        self.reports.append(load_report(body))
        return ReportOutcome.STORED


def done(given: RunOrder) -> RunReport:
    return RunReport(
        contract_version=CONTRACT_VERSION,
        run_id=given.run_id,
        attempt=given.attempt,
        lease_token=given.lease_token,
        started_at=1.0,
        finished_at=2.0,
        device_s=1.0,
        harness_epoch=1,
        environment=None,
        commit_failures=(CommitFailure(given.sha, FAILURE),),
        failure=FAILURE,
    )


@pytest.fixture
def agent_with(tmp_path):
    def make(service, work=lambda given, _: done(given)):
        return Agent(
            service=service, spool=Spool(tmp_path / "spool"), work=work, lock_dir=tmp_path / "locks", device="cpu"
        )

    return make


def raising(error):
    def work(_order, _progress):
        raise error

    return work


def test_a_run_is_claimed_carried_out_and_reported(agent_with):
    service = FakeService(5)
    assert agent_with(service).handle(5) is Outcome.REPORTED
    assert service.reports == [done(order(5))]


def test_a_ring_for_a_run_that_is_gone_still_finds_what_else_is_queued(agent_with):
    service = FakeService(6)
    assert agent_with(service).handle(5) is Outcome.REPORTED
    assert service.asked == [5, None]
    assert [report.run_id for report in service.reports] == [6]


def test_nothing_queued_is_nothing_to_do(agent_with):
    assert agent_with(FakeService()).handle(None) is Outcome.NOTHING


def test_one_ring_empties_the_queue(agent_with):
    service = FakeService(1, 2, 3)
    assert agent_with(service).drain(2) is Outcome.REPORTED
    assert [report.run_id for report in service.reports] == [2, 1, 3]


def test_a_device_in_use_is_left_alone_and_nothing_is_claimed(agent_with):
    service = FakeService(1, 2)
    other = agent_with(service)
    seen = []

    def work(given, _progress):
        seen.append(other.handle(None))
        return done(given)

    assert agent_with(service, work).handle(1) is Outcome.REPORTED
    assert seen == [Outcome.BUSY]
    assert [queued.run_id for queued in service.queued] == [2]


def test_a_report_waits_on_disk_while_the_service_is_away_and_goes_first_when_it_is_back(agent_with):
    service = FakeService(1, 2)

    def work(given, _progress):
        service.trouble = ServiceAwayError("no connection") if given.run_id == 1 else None
        return done(given)

    agent = agent_with(service, work)
    assert agent.drain() is Outcome.SPOOLED
    assert agent.drain() is Outcome.AWAY
    service.trouble = None
    assert agent.drain() is Outcome.REPORTED
    assert [report.run_id for report in service.reports] == [1, 2]


@pytest.mark.parametrize("trouble", [ServiceAwayError("gone"), ServiceRefusedError(403, "quarantined")])
def test_a_service_that_gives_no_order_is_not_an_error_of_the_runner(agent_with, trouble):
    service = FakeService(1)
    service.trouble = trouble
    assert agent_with(service).drain() is Outcome.AWAY


def test_a_run_that_was_taken_away_stops_and_is_not_reported(agent_with):
    service = FakeService(1)
    service.held = False

    def work(_order, progress):
        assert service.beaten.wait(10)
        for _ in range(10_000):
            if not progress("measure", 1, 2):
                raise HoldLostError("taken")
            threading.Event().wait(0.001)
        raise AssertionError("progress never said stop")

    assert agent_with(service, work).handle(None) is Outcome.LOST
    assert service.reports == []


def test_heartbeats_tell_how_far_the_work_is(agent_with):
    service = FakeService(1)

    def work(given, progress):
        progress("measure", 2, 5)
        service.beaten.clear()
        assert service.beaten.wait(10)
        return done(given)

    agent_with(service, work).handle(None)
    last = service.beats[-1]
    assert (last.run_id, last.lease_token, last.stage, last.done, last.total) == (1, "lease-1", "measure", 2, 5)


def test_a_stopped_runner_gives_its_run_back_as_transient(agent_with):
    service = FakeService(1)
    agent = agent_with(service)

    def work(_order, progress):
        agent.stopping.set()
        assert not progress("measure", 0, 1)
        raise HoldLostError("stopping")

    agent._work = work
    agent.drain()
    assert service.reports[0].failure.kind is FailureKind.TRANSIENT
    assert "stopped" in service.reports[0].failure.reason


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (CheckoutError("the repository cannot be fetched", FailureKind.TRANSIENT), FailureKind.TRANSIENT, "cannot be"),
        (ZeroDivisionError("division by zero"), FailureKind.BUG, "ZeroDivisionError: division by zero"),
    ],
)
def test_every_failure_is_reported_with_its_kind_and_the_runner_goes_on(agent_with, error, kind, reason):
    service = FakeService(1, 2)
    agent = agent_with(service, raising(error))
    assert agent.drain() is Outcome.REPORTED
    assert len(service.reports) == 2
    assert service.reports[0].failure.kind is kind
    assert reason in service.reports[0].failure.reason


def test_a_bug_of_ours_brings_its_traceback(agent_with):
    service = FakeService(1)
    agent_with(service, raising(KeyError("x"))).handle(None)
    assert "Traceback" in service.reports[0].failure.log_tail


def test_a_runner_whose_harness_was_changed_measures_no_more(agent_with):
    service = FakeService(1, 2)
    agent = agent_with(service, raising(HarnessChangedError("the installed harness was changed")))
    agent.drain()
    assert agent.stopping.is_set()
    assert [report.failure.kind for report in service.reports] == [FailureKind.BUG]


def test_two_attempts_of_a_run_are_two_reports(agent_with):
    service = FakeService(1)
    agent = agent_with(service)
    agent.handle(None)
    service.queued.append(replace(order(1), attempt=2))
    agent.handle(None)
    assert [report.attempt for report in service.reports] == [1, 2]
