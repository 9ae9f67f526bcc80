"""Standing A/A: which comparisons are followed by one, what is kept of it, and whom an advisory runner pages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, insert, select, text

from dashboards.evidence import gather
from service.contract import RunReason
from service.domain import health
from service.domain.states import Standing
from service.store.tables import AaComparison, ChangePoint, Measurement, Notification, Regression, Run, Runner
from service.usecases import aa, dispatch, standing
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story

ONE = {"workloads": dict(list(WORKLOADS.items())[:1])}


@pytest.fixture
def story(sessions):
    made = Story(sessions, [Planted()] * 20, seed=8, options=ONE)
    made.push(3)
    return made


def comparison(session, story, *, count=1) -> list[Run]:
    """Finished interleaved runs that measured one workload of their commit."""
    first = session.scalars(select(Run).order_by(Run.id)).first()
    values = {
        "repository_id": first.repository_id,
        "commit_id": first.commit_id,
        "pool": "cpu",
        "reason": RunReason.CONFIRM,
        "state": "reported",
        "runner_id": story.runner_ids["cpu"],
        "partner_shas": [story.shas[2]],
        "analysed_at": story.now,
    }
    done = session.scalar(select(func.count()).select_from(Run))
    rows = [{**values, "dedupe_key": f"confirm:x:{done + number}:1"} for number in range(count)]
    ids = session.scalars(insert(Run).returning(Run.id), rows).all()
    columns = [column.key for column in Measurement.__table__.columns if column.key not in {"id", "run_id"}]
    copied = ", ".join(f"m.{name}" for name in columns)
    session.execute(
        text(
            f"INSERT INTO measurement (run_id, {', '.join(columns)}) SELECT r.id, {copied} "
            "FROM run r, (SELECT * FROM measurement ORDER BY id LIMIT 1) m WHERE r.id = ANY(:ids)"
        ),
        {"ids": list(ids)},
    )
    return list(session.scalars(select(Run).where(Run.id.in_(ids)).order_by(Run.id)))


def test_one_comparison_in_twenty_is_followed_by_an_aa_and_asking_again_orders_no_more(sessions, story):
    with sessions.begin() as session:
        finished = comparison(session, story, count=1000)
        for _ in range(2):
            for run in finished:
                aa.order_after(session, run=run)
        ordered = session.scalars(select(Run).where(Run.reason == RunReason.AA)).all()
    assert len(ordered) == pytest.approx(50, abs=21)  # three standard deviations
    assert {run.dedupe_key for run in ordered} == {f"aa:{r.id}" for r in finished if health.is_standing_aa(r.id)}
    assert all(run.partner_shas == [] and len(run.workload_keys) == 1 and run.priority < 0 for run in ordered)


def test_what_is_no_comparison_is_never_followed_by_one(sessions, story, monkeypatch):
    monkeypatch.setattr(health, "is_standing_aa", lambda _run_id: True)
    with sessions.begin() as session:
        (run,) = comparison(session, story)
        run.partner_shas = []
        assert aa.order_after(session, run=run).runs == []
        run.partner_shas, run.state = [story.shas[2]], "failed"
        assert aa.order_after(session, run=run).runs == []


def run_an_aa(sessions, story, monkeypatch) -> None:
    monkeypatch.setattr(health, "is_standing_aa", lambda _run_id: True)
    with sessions.begin() as session:
        (run,) = comparison(session, story)
        aa.order_after(session, run=run)
    story.work()


def test_an_aa_of_a_quiet_runner_is_kept_and_does_not_alarm(sessions, story, monkeypatch):
    run_an_aa(sessions, story, monkeypatch)
    with sessions() as session:
        (kept,) = session.scalars(select(AaComparison)).all()
        assert (kept.family, kept.workload_key) == ("gemm", next(iter(ONE["workloads"])))
        assert kept.effect_low < kept.effect < kept.effect_high
        assert not kept.alarmed
        assert session.scalars(select(ChangePoint.id)).all() == []


def test_a_penalty_for_whoever_runs_second_is_an_alarm_where_there_is_nothing_to_find(sessions, story, monkeypatch):
    from dataclasses import replace

    honest = story.device._blocks

    def unfair(*args, **kwargs):
        for block in honest(*args, **kwargs):
            factor = 1.1 if block.process % 2 else 1.0
            yield replace(block, wall_s=tuple(x * factor for x in block.wall_s))

    monkeypatch.setattr(story.device, "_blocks", unfair)
    run_an_aa(sessions, story, monkeypatch)
    with sessions() as session:
        (kept,) = session.scalars(select(AaComparison)).all()
        assert kept.alarmed
        assert kept.effect == pytest.approx(0.1, abs=0.03)


def remember(session, story, *, alarms: int, of: int = 60) -> None:
    """A runner's A/A comparisons, as if they had been made."""
    runs = comparison(session, story, count=of)
    for number, run in enumerate(runs):
        session.add(
            AaComparison(
                runner_id=story.runner_ids["cpu"],
                run_id=run.id,
                family="gemm",
                workload_key="gemm_f32[k=1]",
                effect=0.03,
                effect_low=0.02,
                effect_high=0.04,
                alarmed=number < alarms,
                judged_at=story.now,
            )
        )


def make_advisory(sessions, story) -> None:
    with sessions.begin() as session:
        remember(session, story, alarms=7)
        runner = session.get_one(Runner, story.runner_ids["cpu"])
        standing.judge(session, runner=runner, now=story.now)
        assert runner.standing == Standing.ADVISORY
        assert runner.standing_reason == "7 of its last 60 A/A comparisons alarmed"


def planted_story(sessions) -> Story:
    plans = [Planted()] * 20
    plans[12] = Planted({"gemm": 1.25})
    made = Story(sessions, plans, seed=8, options=ONE)
    for tip in (2, 4, 6, 8, 10):
        made.push(tip)
    return made


def test_an_advisory_runner_suspects_but_pages_nobody_and_another_one_confirms(sessions):
    story = planted_story(sessions)
    make_advisory(sessions, story)
    story.push(14)
    assert story.told() == []
    with sessions() as session:
        waiting = session.scalars(select(Run).where(Run.reason == RunReason.CONFIRM, Run.state == "queued")).all()
        assert len(waiting) == 1
        assert session.scalars(select(ChangePoint.confirmed_at)).all() == [None]
    with sessions.begin() as session:
        other = Runner(name="two", pool="cpu", token_hash="two", device="d", comparable_key="k", facts={})
        session.add(other)
        session.flush()
        story.runner_ids["cpu"] = other.id
    story.work()
    assert story.found() == {12: "attributed"}
    assert "opened" in {event for _, event in story.told()}
    with sessions() as session:
        found = gather(session, session.scalars(select(Regression.id)).one())
        assert (found.aa.runner, found.aa.standing) == ("two", "trusted")


def test_a_confirmation_in_hand_when_its_runner_lost_its_trust_is_measured_again_by_another(sessions):
    story = planted_story(sessions)
    story.order(14)
    story.step()
    run_id = story.measure()
    with sessions() as session:
        assert session.get_one(Run, run_id).reason == RunReason.CONFIRM
    make_advisory(sessions, story)
    story.analyse(run_id)
    assert story.told() == []
    with sessions() as session:
        again = session.scalars(select(Run).where(Run.reason == RunReason.CONFIRM, Run.state == "queued")).all()
        assert [run.commit_id for run in again] == [story.commit_id(14)]
        assert session.scalars(select(ChangePoint.confirmed_at)).all() == [None]


def test_an_advisory_runner_proves_itself_by_more_of_its_last_aa(sessions, story, monkeypatch):
    run_an_aa(sessions, story, monkeypatch)
    make_advisory(sessions, story)
    for _ in range(3):
        story.now += timedelta(hours=1)
        with sessions.begin() as session:
            standing.order_proofs(session, now=story.now)
        story.work()
    with sessions() as session:
        mine = session.scalars(select(Run).where(Run.for_runner_id == story.runner_ids["cpu"]).order_by(Run.id)).all()
        assert {run.reason for run in mine} == {RunReason.AA}
        assert {tuple(run.workload_keys) for run in mine} == {tuple(ONE["workloads"])}
        runner = session.get_one(Runner, story.runner_ids["cpu"])
        assert runner.standing == Standing.TRUSTED  # the oldest alarms have left the window
        assert session.scalars(select(Notification.id)).all() == []  # nobody asked to hear of the fleet


def test_an_advisory_runner_goes_on_with_the_history(sessions, story):
    make_advisory(sessions, story)
    before = story.run_count(RunReason.PUSH)
    story.push(5)
    with sessions() as session:
        assert session.scalars(select(Run.state).where(Run.reason == RunReason.PUSH)).all() == ["reported"] * (
            before + 1
        )
    with sessions.begin() as session:
        runner = session.get_one(Runner, story.runner_ids["cpu"])
        (run,) = comparison(session, story)
        run.state = "queued"
        session.flush()
        assert dispatch.claim(session, runner=runner, run_id=run.id, now=story.now, lease_s=90) is None
