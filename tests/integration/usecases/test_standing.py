"""Runners lose their trust and earn it back: quarantine, proofs, one notice, and what happens to their work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import select

from service.contract import DeviceHealth, RunReason
from service.domain.states import JobVerdict, NotificationEvent, RunState, Standing
from service.store.tables import AuditEvent, Channel, JobHealth, Notification, Repository, Run, Runner
from service.usecases import dispatch, ingest, standing
from service.usecases.standing import StandingRefusedError
from tests.peers import Peers, deliver, point_channels
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story

ONE = dict(list(WORKLOADS.items())[:1])
QUIET = {"drift_sd": 0.001, "workloads": ONE}


def fleet_story(sessions) -> Story:
    """A story with a fleet channel, whose runner has a quiet past of twelve jobs."""
    story = Story(sessions, [Planted()] * 30, seed=3, options=QUIET)
    with sessions.begin() as session:
        config = {"fleet": True}
        session.add(Channel(repository_id=story.repository_id, name="fleet", kind="email", config=config))
    story.push(1)
    with sessions.begin() as session:
        (first,) = session.scalars(select(JobHealth)).all()
        facts = {column.key: getattr(first, column.key) for column in JobHealth.__table__.columns if column.key != "id"}
        for earlier in range(11):  # attempts of the past, each a little off
            canary_s = first.compute_canary_s * (1 + 1e-3 * (earlier % 3))
            session.add(JobHealth(**{**facts, "attempt": -earlier, "compute_canary_s": canary_s}))
    assert standing_of(story) is Standing.TRUSTED
    return story


def standing_of(story) -> Standing:
    with story.sessions() as session:
        return Standing(session.scalars(select(Runner.standing).order_by(Runner.id)).first())


def notices(story) -> list[str]:
    with story.sessions() as session:
        wanted = (
            select(Notification.words).where(Notification.event == NotificationEvent.RUNNER).order_by(Notification.id)
        )
        return list(session.scalars(wanted))


def sicken(story, *, jobs=3, first=13) -> None:
    """Let the canary move by a tenth for some jobs."""
    story.device.machine_factor = 1.1
    for tip in range(first, first + jobs):
        story.push(tip)


def proofs(story) -> list[Run]:
    with story.sessions() as session:
        return list(session.scalars(select(Run).where(Run.for_runner_id.is_not(None)).order_by(Run.id)))


def prove(story, *, times: int) -> None:
    """Let the beat order proofs, and the runner take them."""
    for _ in range(times):
        story.now += timedelta(hours=1)
        with story.sessions.begin() as session:
            standing.order_proofs(session, now=story.now)
        story.work()


def test_three_jobs_with_an_odd_canary_begin_the_quarantine_and_two_do_not(sessions):
    story = fleet_story(sessions)
    sicken(story, jobs=2)
    assert standing_of(story) is Standing.TRUSTED
    sicken(story, jobs=1, first=15)
    assert standing_of(story) is Standing.QUARANTINED
    with sessions() as session:
        runner = session.scalars(select(Runner)).one()
        assert "compute canary is +" in runner.standing_reason
        assert runner.standing_since == story.now - timedelta(seconds=10)  # the claim after it found nothing
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "runner.quarantined")).one()
        assert (event.subject_type, event.subject_id, event.actor) == ("runner", runner.id, "kernelwatch")
    (notice,) = notices(story)
    assert "canaries only" in notice


def test_a_quarantined_runner_leaves_its_queued_work_to_others(sessions):
    story = fleet_story(sessions)
    sicken(story)
    story.order(20)
    assert story.measure() is None
    with sessions.begin() as session:
        other = Runner(name="two", pool="cpu", token_hash="two", device="d", comparable_key="k", facts={})
        session.add(other)
        session.flush()
        order = dispatch.claim(session, runner=other, run_id=None, now=story.now, lease_s=90)
    assert order is not None
    assert order.reason is RunReason.PUSH


def test_canary_runs_are_for_the_quarantined_runner_alone_and_one_at_a_time(sessions):
    story = fleet_story(sessions)
    sicken(story)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: order_once(story), range(4)))
    (run,) = proofs(story)
    assert (run.reason, run.workload_keys) == (RunReason.CANARY, [])
    with sessions.begin() as session:
        other = Runner(name="two", pool="cpu", token_hash="two", device="d", comparable_key="k", facts={})
        session.add(other)
        session.flush()
        assert dispatch.claim(session, runner=other, run_id=run.id, now=story.now, lease_s=90) is None
    order_once(story)
    assert len(proofs(story)) == 1
    story.work()
    order_once(story)
    assert len(proofs(story)) == 1  # the next one waits a while
    story.now += timedelta(minutes=3)
    order_once(story)
    assert len(proofs(story)) == 2


def order_once(story) -> None:
    with story.sessions.begin() as session:
        standing.order_proofs(session, now=story.now)


def test_ten_clean_canary_runs_bring_a_runner_back(sessions):
    story = fleet_story(sessions)
    sicken(story)
    prove(story, times=3)
    assert standing_of(story) is Standing.QUARANTINED
    story.device.machine_factor = 1.0
    prove(story, times=9)
    assert standing_of(story) is Standing.QUARANTINED
    prove(story, times=1)
    assert standing_of(story) is Standing.TRUSTED
    assert {run.state for run in proofs(story)} == {RunState.REPORTED}
    began, ended = notices(story)
    assert "is quarantined" in began
    assert "is trusted: 10 clean jobs in a row" in ended
    story.push(20)
    assert story.run_count(RunReason.PUSH) == 5


def test_a_canary_run_is_no_measurement_of_its_commit(sessions):
    from service.store import commits
    from service.store.tables import Measurement

    story = fleet_story(sessions)
    sicken(story)
    prove(story, times=1)
    (run,) = proofs(story)
    with sessions.begin() as session:
        assert session.scalars(select(Measurement.id).where(Measurement.run_id == run.id)).all() == []
        for other in session.scalars(select(Run).where(Run.commit_id == run.commit_id, Run.id != run.id)):
            other.state = RunState.FAILED
        here = commits.last_measured_before(session, repository_id=story.repository_id, pool="cpu", position=29)
        assert here.id != run.commit_id


def test_one_hard_fault_is_enough_even_where_nothing_could_be_measured(sessions):
    story = fleet_story(sessions)
    story.device.device_health = DeviceHealth(ecc_uncorrected=2)
    story.push(13)
    assert standing_of(story) is Standing.QUARANTINED
    assert "2 uncorrectable memory errors" in notices(story)[0]
    prove(story, times=10)  # the board still counts two: old news
    assert standing_of(story) is Standing.TRUSTED


def test_eight_copies_of_a_report_are_one_job_and_eight_reports_at_once_one_notice(sessions):
    story = fleet_story(sessions)
    story.device.machine_factor = 1.1
    given = []
    for tip in range(13, 21):
        story.order(tip)
        with sessions.begin() as session:
            runner = session.get_one(Runner, story.runner_ids["cpu"])
            given.append(dispatch.claim(session, runner=runner, run_id=None, now=story.now, lease_s=90))
    reports = [story.device.report(order, now=story.now.timestamp()) for order in given]

    def hand_in(report) -> None:
        with sessions.begin() as session:
            runner = session.get_one(Runner, story.runner_ids["cpu"])
            ingest.store_report(session, report, runner=runner, now=story.now, max_attempts=3)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hand_in, [report for report in reports for _ in range(2)]))
    assert standing_of(story) is Standing.QUARANTINED
    assert len(notices(story)) == 1
    with sessions() as session:
        assert len(session.scalars(select(JobHealth.id)).all()) == 12 + 8


def test_a_release_by_hand_begins_the_past_anew(sessions):
    story = fleet_story(sessions)
    sicken(story)
    by_hand(story, Standing.TRUSTED, "new firmware: this is its new level")
    sicken(story, jobs=4, first=16)  # still a tenth off the old level
    assert standing_of(story) is Standing.TRUSTED


def by_hand(story, wanted: Standing, reason: str) -> None:
    with story.sessions.begin() as session:
        runner_id = story.runner_ids["cpu"]
        standing.decide(session, runner_id=runner_id, wanted=wanted, reason=reason, actor="ada", now=story.now)


def test_what_a_person_has_quarantined_only_a_person_releases(sessions):
    story = fleet_story(sessions)
    by_hand(story, Standing.QUARANTINED, "the fan is broken")
    prove(story, times=12)
    assert standing_of(story) is Standing.QUARANTINED
    assert proofs(story) == []
    assert "by ada: the fan is broken" in notices(story)[0]
    by_hand(story, Standing.TRUSTED, "new fan")
    story.push(20)
    with story.sessions() as session:
        actors = session.scalars(select(AuditEvent.actor).where(AuditEvent.subject_type == "runner")).all()
        assert actors == ["ada", "ada"]


@pytest.mark.parametrize(
    ("wanted", "reason", "why"),
    [
        (Standing.TRUSTED, "x", "already"),
        (Standing.QUARANTINED, " ", "say why"),
        (Standing.ADVISORY, "x", "only its A/A"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(sessions, wanted, reason, why):
    story = Story(sessions, [Planted()] * 3, seed=1)
    with pytest.raises(StandingRefusedError, match=why):
        by_hand(story, wanted, reason)


def test_the_fleets_owner_hears_it_once_and_nobody_else(sessions, tmp_path):
    peers = Peers(tmp_path / "caught")
    story = fleet_story(sessions)
    fleet = {"to": ["racks@example.org"], "smtp_url": peers.smtp_url, "fleet": True}
    with sessions.begin() as session:
        again = Repository(name="acme/more", clone_url="file:///nowhere", webhook_secret="s" * 32)
        session.add(again)
        session.flush()
        session.add(Channel(repository_id=again.id, name="fleet", kind="email", config=fleet))
    point_channels(story, peers, email=fleet)  # of both repositories: one address
    sicken(story)
    assert deliver(story, peers) == 1
    (mail,) = peers.store.all()
    peers.close()
    assert mail.kind == "email"
    assert "cpu (pool cpu) is quarantined" in mail.title


def test_a_job_that_neighbours_disturbed_is_kept_but_not_judged(sessions):
    from dataclasses import replace

    story = fleet_story(sessions)
    story.device.machine_factor = 1.1
    story.order(13)
    with sessions.begin() as session:
        runner = session.get_one(Runner, story.runner_ids["cpu"])
        order = dispatch.claim(session, runner=runner, run_id=None, now=story.now, lease_s=90)
        report = replace(story.device.report(order, now=story.now.timestamp()), flags=("contended",))
        ingest.store_report(session, report, runner=runner, now=story.now, max_attempts=3)
    with sessions() as session:
        last = session.scalars(select(JobHealth).order_by(JobHealth.id.desc())).first()
        assert last.verdict == JobVerdict.UNJUDGED
        assert last.contended
