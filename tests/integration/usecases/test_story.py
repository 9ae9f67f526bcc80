"""From reports to named commits, through the real store, with a device whose truth is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from service.contract import RunReason
from service.domain.states import Direction
from service.store.tables import Bisection, ChangePoint, Regression
from tests.story import Planted, Story

QUIET = Planted()
DOCS = Planted(docs=True)


def line(count: int, **planted: Planted) -> list[Planted]:
    """`count` quiet commits with some planted ones, given as c<position>=..."""
    plans = [QUIET] * count
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    return plans


@pytest.mark.parametrize("seed", range(6))
def test_two_slowdowns_and_a_gain_are_named_and_nothing_else(sessions, seed):
    story = Story(
        sessions,
        line(
            40,
            c11=Planted({"gemm": 1.15}),
            c19=Planted({"moe": 0.85}),
            c29=Planted({"attention": 1.2}),
            c5=DOCS,
            c12=DOCS,
            c13=DOCS,
            c22=Planted(broken=True),
            c33=Planted(wrong="gemm"),
        ),
        seed=seed,
    )
    for tip in (2, 4, 7, 9, 14, 17, 21, 25, 31, 33, 36, 39):
        story.push(tip)
    assert story.found() == {11: "attributed", 29: "attributed"}
    assert story.found(Direction.IMPROVEMENT) == {19: "attributed"}
    events = [event for _, event in story.told()]
    told = {event: events.count(event) for event in set(events)}
    assert told == {
        "opened": 4,
        "attributed": 4,
        "broken": 2,
        "repaired": 2,
    }  # two channels: two regressions, commit 33


def test_two_culprits_of_different_families_in_one_push_become_two_regressions(sessions):
    story = Story(sessions, line(20, c11=Planted({"gemm": 1.15}), c13=Planted({"attention": 1.2})), seed=3)
    for tip in (2, 4, 6, 8, 16, 19):
        story.push(tip)
    assert story.found() == {11: "attributed", 13: "attributed"}


@pytest.mark.parametrize("seed", range(4))
def test_a_history_without_a_step_tells_nobody_anything(sessions, seed):
    story = Story(sessions, line(40), seed=100 + seed)
    for tip in range(1, 40, 2):
        story.push(tip)
    assert story.found() == {}
    assert story.found(Direction.IMPROVEMENT) == {}
    assert story.told() == []


def test_a_single_spike_is_withdrawn_by_the_interleaved_re_run(sessions):
    story = Story(sessions, line(12), seed=5)
    for tip in (1, 3, 5):
        story.push(tip)
    story.device.process_sd, noisy = 0.2, story.device.process_sd
    story.push(7)
    story.device.process_sd = noisy
    story.push(9)
    assert story.found() == {}


def test_a_culprit_beside_a_commit_that_does_not_build_is_still_named(sessions):
    story = Story(sessions, line(16, c9=Planted(broken=True), c10=Planted({"gemm": 1.15})), seed=8)
    for tip in (2, 4, 6, 13, 15):
        story.push(tip)
    # commit 9 cannot be built: the answer may be the range 9..10, never a lone wrong commit
    assert set(story.found()) <= {10, -1}


def test_docs_only_commits_are_never_blamed(sessions):
    story = Story(sessions, line(14, c8=DOCS, c9=Planted({"moe": 1.12}), c10=DOCS, c11=DOCS), seed=9)
    for tip in (2, 4, 6, 11, 13):
        story.push(tip)
    assert story.found() == {9: "attributed"}


def test_a_fix_closes_the_regression_and_says_so_once(sessions):
    story = Story(sessions, line(24, c8=Planted({"gemm": 1.2}), c17=Planted({"gemm": 1 / 1.2})), seed=10)
    for tip in (2, 4, 6, 10, 12, 14, 19, 21, 23):
        story.push(tip)
    assert story.found() == {8: "fixed"}
    assert [event for _, event in story.told()].count("fixed") == 2


def test_a_regression_of_one_push_with_one_commit_needs_no_search(sessions):
    story = Story(sessions, line(10, c6=Planted({"gemm": 1.15})), seed=11)
    for tip in range(1, 10):
        story.push(tip)
    assert story.found() == {6: "attributed"}
    assert story.run_count(RunReason.BISECTION) <= 1


def test_eight_reports_at_once_make_one_regression(sessions):
    pools = tuple(f"pool{number}" for number in range(8))
    story = Story(sessions, line(14, c9=Planted({"moe": 1.2})), seed=12, pools=pools)
    for tip in (2, 4, 6):
        story.push(tip)
    for pool in pools:
        story.order(12, pool=pool)
        story.step(pool)  # suspects, and orders the interleaved run
    with ThreadPoolExecutor(8) as threads:
        confirmed = [story.measure(pool) for pool in pools]
        assert all(confirmed)
        list(threads.map(story.analyse, confirmed))
    with sessions() as session:
        assert session.scalar(select(func.count()).select_from(Regression)) == 1
        assert session.scalar(select(func.count()).select_from(Bisection)) == 1
        joined = session.scalar(select(func.count()).where(ChangePoint.regression_id.is_not(None)))
    assert joined == 8
    assert [event for _, event in story.told()].count("opened") == 2


def test_one_report_analysed_by_eight_workers_at_once_changes_things_once(sessions):
    story = Story(sessions, line(14, c9=Planted({"moe": 1.2})), seed=13)
    for tip in (2, 4, 6):
        story.push(tip)
    story.order(12)
    while (run_id := story.measure()) is not None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(story.analyse, [run_id] * 8))
    assert story.found() == {9: "attributed"}
    assert sorted(event for _, event in story.told()) == ["attributed"] * 2 + ["opened"] * 2
