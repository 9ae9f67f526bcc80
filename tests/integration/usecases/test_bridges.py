"""A new environment, epoch or version: a linked series, a bridge over the last commits once, and never an alarm."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select, text

from service.contract import RunReason
from service.domain.states import RegressionState
from service.store import lineage
from service.store.tables import (
    Benchmark,
    ChangePoint,
    GitCommit,
    Measurement,
    Regression,
    Run,
    Runner,
    Series,
    Workload,
)
from service.usecases import bridge, dispatch, ingest
from service.usecases.triage import Decision, decide
from tests.story import Planted, Story

ONE = {"moe_f32[n=700]": ("moe_f32", "moe", 0.7e-3)}
BRIDGE = RunReason.BRIDGE


def tell(sessions, *tips, length=40, seed=71, workloads=None, **planted) -> Story:
    plans = [Planted()] * length
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    story = Story(sessions, plans, seed=seed, options={"workloads": workloads or ONE})
    for tip in tips:
        story.push(tip)
    return story


def move(story, place="new", **facts) -> None:
    """From now on the pool's machine is another class."""
    story.device.comparable_key, story.device.facts = f"cpu:{place}", {"cpu": "simulated", "driver": place, **facts}


def bridged(story) -> list[int]:
    """Positions of the commits that bridges were ordered for."""
    with story.sessions() as session:
        query = select(GitCommit.position).join(Run, Run.commit_id == GitCommit.id).where(Run.reason == BRIDGE)
        return sorted(session.scalars(query))


def links(story) -> dict[str, str | None]:
    """Comparable key -> that of the predecessor."""
    with story.sessions() as session:
        key = {series.id: series.comparable_key for series in session.scalars(select(Series))}
        return {s.comparable_key: key.get(s.predecessor_id) for s in session.scalars(select(Series))}


def living(story) -> set[str]:
    with story.sessions() as session:
        return set(session.scalars(select(Series.comparable_key).where(lineage.living())))


def verdicts(story) -> dict[str, tuple[str, str]]:
    with story.sessions() as session:
        rows = session.execute(select(Series.comparable_key, Series.verdict, Series.verdict_reason))
        return {key: (verdict, reason) for key, verdict, reason in rows}


def test_a_new_environment_measures_the_last_five_commits_again_and_tells_nobody(sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    story.device.host_factor = {"moe": 1.4}
    story.push(9)
    assert bridged(story) == [4, 5, 6, 7, 8]
    assert story.told() == []
    assert links(story) == {"cpu:simulated": None, "cpu:new": "cpu:simulated"}
    with story.sessions() as session:
        assert session.scalars(select(ChangePoint)).all() == []
        runs = session.scalars(select(Run).where(Run.reason == BRIDGE)).all()
        assert {run.priority for run in runs} == {bridge.BRIDGE_PRIORITY}
        new = session.scalars(select(Series).where(Series.comparable_key == "cpu:new")).one()
        measured = session.scalars(
            select(GitCommit.position).join(Measurement).where(Measurement.series_id == new.id)
        ).all()
        assert sorted(measured) == [4, 5, 6, 7, 8, 9]


def test_a_bridge_is_ordered_once_however_often_it_is_asked_for(sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    for tip in (9, 10, 11):
        story.push(tip)
    with story.sessions.begin() as session:
        for run_id in session.scalars(select(Run.id).where(Run.reason == RunReason.PUSH)).all():
            assert bridge.after_report(session, run_id=run_id).runs == []
    assert bridged(story) == [4, 5, 6, 7, 8]


def test_the_number_of_commits_is_a_setting_and_none_is_one(sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    story.order(9)
    run_id = story.measure()
    with story.sessions.begin() as session:
        assert bridge.after_report(session, run_id=run_id, commits=0).runs == []
        assert len(bridge.after_report(session, run_id=run_id, commits=2).runs) == 2
    assert bridged(story) == [7, 8]


def test_two_machines_that_take_turns_are_bridged_once_and_each_keeps_its_series(sessions):
    story = tell(sessions, *range(1, 9))
    for tip in range(9, 21):
        move(story, place=("new", "simulated")[tip % 2])
        story.push(tip)
    with story.sessions() as session:
        counts = session.execute(
            select(Series.comparable_key, func.count(func.distinct(Measurement.commit_id)))
            .join(Measurement)
            .join(Run)
            .where(Run.reason == RunReason.PUSH)
            .group_by(Series.comparable_key)
        ).all()
        assert session.scalar(select(func.count()).select_from(Series)) == 2
    assert dict(counts) == {"cpu:simulated": 14, "cpu:new": 6}
    assert set(bridged(story)) == {5, 6, 7, 8, 9}
    assert len(bridged(story)) <= 5 * bridge.BRIDGE_ATTEMPTS
    assert links(story) == {"cpu:simulated": None, "cpu:new": "cpu:simulated"}
    assert story.told() == []


def test_an_environment_that_did_not_last_is_bridged_over_to_the_commits_before_it(sessions):
    story = tell(sessions, *range(1, 9))
    for tip, place in ((9, "new"), (10, "newest")):
        move(story, place=place)
        story.push(tip)
    assert bridged(story) == [4, 5, 5, 6, 6, 7, 7, 8, 8, 9]


def test_a_return_to_a_known_environment_continues_its_series_without_another_bridge(sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    story.push(9)
    assert living(story) == {"cpu:new"}
    before = bridged(story)
    move(story, place="simulated")
    story.push(10)
    assert bridged(story) == before
    assert living(story) == {"cpu:simulated"}


def test_a_bridge_that_another_machine_took_is_ordered_again_but_not_for_ever(sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    story.order(9)
    story.analyse(story.measure())
    move(story, place="simulated")  # the bridges are measured by the old machine, every time
    story.work()
    assert story.run_count(BRIDGE) == 5 * bridge.BRIDGE_ATTEMPTS
    with story.sessions() as session:
        assert set(session.scalars(select(Run.state).where(Run.reason == BRIDGE))) == {"reported"}


def test_reports_of_two_new_environments_at_once_end_in_one_line(sessions):
    """The later one waits until the other's series are there, before it looks for its kin."""
    story = tell(sessions, 1, 2, 3)
    with sessions.begin() as session:
        facts = {"device": "simulated", "comparable_key": "cpu:simulated", "facts": {}}
        session.add(Runner(name="second", pool="cpu", token_hash="second", **facts))
    reports = {}
    for name, tip in (("cpu", 4), ("second", 5)):
        story.order(tip)
        with sessions.begin() as session:
            given = dispatch.claim(session, runner=named(session, name), run_id=None, now=story.now, lease_s=90)
        move(story, place=f"place-{tip}")
        reports[name] = story.device.report(given, now=story.now.timestamp() + tip)

    def store(session, name):
        ingest.store_report(session, reports[name], runner=named(session, name), now=story.now, max_attempts=3)

    def store_other():
        with sessions.begin() as session:
            store(session, "second")

    with ThreadPoolExecutor(1) as pool, sessions.begin() as session:
        store(session, "cpu")
        other = pool.submit(store_other)
        wait_until_blocked(session, unless=other.done)
        session.commit()
        other.result()
    assert links(story) == {
        "cpu:simulated": None,
        "cpu:place-4": "cpu:simulated",
        "cpu:place-5": "cpu:place-4",
    }
    assert living(story) == {"cpu:place-5"}


def named(session, name):
    return session.scalars(select(Runner).where(Runner.name == name)).one()


def wait_until_blocked(session, *, unless):
    """Until another session of this database waits for a lock, or `unless` says that nobody will."""
    waits = text("SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database"
                 " WHERE NOT granted AND locktype = 'advisory' AND datname = current_database()")  # fmt: skip
    while not unless() and not session.scalar(waits):
        time.sleep(0.01)


@pytest.mark.parametrize("order", list(itertools.permutations((7, 8, 9)))[::2])
def test_reports_in_any_order_end_in_the_same_links(sessions, order):
    story = tell(sessions, 1, 2, 3)
    place = {7: "simulated", 8: "new", 9: "newest"}
    for tip in order:
        move(story, place=place[tip])
        story.push(tip)
    assert links(story) == {"cpu:simulated": None, "cpu:new": "cpu:simulated", "cpu:newest": "cpu:new"}


def test_a_new_harness_epoch_is_bridged(sessions):
    story = tell(sessions, *range(1, 9))
    story.device.harness_epoch = 2
    story.push(9)
    assert bridged(story) == [4, 5, 6, 7, 8]


def test_a_new_benchmark_version_is_linked_and_not_bridged(sessions):
    """An older commit holds the older version: measuring it again would bring nothing of the new one."""
    story = tell(sessions, *range(1, 9))
    story.device.version_from = (9, 2)
    story.push(9)
    assert bridged(story) == []
    with story.sessions() as session:
        rows = session.execute(
            select(Benchmark.version, Series.id, Series.predecessor_id)
            .join(Workload, Workload.benchmark_id == Benchmark.id)
            .join(Series, Series.workload_id == Workload.id)
            .order_by(Benchmark.version)
        ).all()
    [(_, old, none), (_, _, predecessor)] = rows
    assert (none, predecessor) == (None, old)


def test_a_loss_at_the_boundary_itself_is_found_from_the_bridges_baseline(sessions):
    story = tell(sessions, *range(1, 9), c9=Planted({"moe": 1.25}))
    move(story)
    story.push(9)
    assert story.found() == {9: "attributed"}


def test_an_old_step_among_the_bridged_commits_is_not_told_again(sessions):
    story = tell(sessions, *range(1, 9), c6=Planted({"moe": 1.25}))
    assert story.found() == {6: "attributed"}
    told, confirmed = story.told(), story.run_count(RunReason.CONFIRM)
    move(story)
    for tip in (9, 10, 11, 12):
        story.push(tip)
    assert story.run_count(RunReason.CONFIRM) == confirmed
    assert bridged(story) == [4, 5, 6, 7, 8]
    assert (story.found(), story.told()) == ({6: "attributed"}, told)
    assert verdicts(story)["cpu:new"][0] == "regression"


def test_a_loss_that_was_accepted_in_the_old_environment_is_not_told_again_in_the_new_one(sessions):
    story = tell(sessions, *range(1, 9), c6=Planted({"moe": 1.25}))
    with sessions.begin() as session:
        [found] = session.scalars(select(Regression.id))
        accepted = Decision(
            state=RegressionState.EXPECTED,
            actor="ada",
            assignee="bob",
            note="more exact",
            expires_at=story.now + timedelta(days=365),
        )
        decide(session, ids=[found], decision=accepted, now=story.now)
    told = story.told()
    move(story)
    for tip in (9, 10, 11, 12):
        story.push(tip)
    assert (story.found(), story.told()) == ({6: "expected"}, told)
    assert story.run_count(RunReason.CONFIRM) == 1
