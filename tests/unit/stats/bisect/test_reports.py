"""Faults that users of other bisectors reported, each with numbers of our own.

The name of the report stands in each docstring; what is asserted is the kind of fault, not the single line.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.stats.bisect import (
    Failure,
    FailureKind,
    Observation,
    Reason,
    Verdict,
    next_step,
    posterior,
)

LEVELS = {"before_level": -6.9078, "after_level": -6.7678}  # 1 ms, and 14 % more


def test_one_outlier_on_the_good_side_blames_nobody_wrongly(make_problem, make_range, run_to_end):
    """hipfire#137: one slow reading of a good commit named it; three more took it back."""
    world = make_range({6: 0.14}, first={4: [0.15], 3: [0.15], 5: [0.15]})
    outcome, _ = run_to_end(make_problem(8), world)
    assert outcome.positions == (6,)


def test_a_good_anchor_that_reads_wrong_is_found_out(make_problem, make_range, run_to_end):
    """mcp-gateway#615: the good end read at the bad level once and sent 132 commits the wrong way."""
    world = make_range({101: 0.14}, first={0: [0.14]})
    outcome, _ = run_to_end(make_problem(132), world)
    assert outcome.positions == (101,)


def test_a_sandwich_of_identical_builds_refuses(make_problem, make_range, run_to_end):
    """prosper#2040: the culprit failed twice, then passed three times; it was its parent's program."""
    world = make_range({}, builds={1: "same", 2: "same"}, first={2: [0.14, 0.14]})
    outcome, _ = run_to_end(make_problem(2), world)
    assert outcome.verdict is Verdict.NO_CHANGE
    real = make_range({1: 0.14}, builds={2: "same", 1: "same"})
    outcome, _ = run_to_end(make_problem(2), real)
    assert outcome.positions == (1,)


def test_a_factor_of_two_that_does_not_come_back_is_no_change(make_problem, make_range, run_to_end):
    """sparq#3789: the same tree took 2.03 times as long, then 0.99 times."""
    world = make_range({}, first={1: [0.708]})
    outcome, _ = run_to_end(make_problem(1, alarm_effect=0.708, alarm_effect_se=0.05), world)
    assert outcome.verdict is Verdict.NO_CHANGE


def test_a_changed_environment_is_named_not_a_commit(make_problem, make_range, run_to_end):
    """mmtk-core#1444: the runner's image changed and canary and target moved together."""
    task = make_problem(40, environment_changed=True, **LEVELS)
    outcome, _ = run_to_end(task, make_range({}, shift=0.14))
    assert outcome.verdict is Verdict.NO_CHANGE
    assert outcome.reason_code is Reason.ENVIRONMENT


def test_a_good_end_at_the_bad_level_stops_after_two_builds(make_problem, make_range, run_to_end):
    """faster-cpython/ideas#694."""
    outcome, log = run_to_end(make_problem(200, **LEVELS), make_range({}, shift=0.14))
    assert outcome.reason_code is Reason.ENVIRONMENT
    assert {e.position for e in log} == {0, 200}


def test_a_bad_end_at_the_old_level_was_transient(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(200, **LEVELS), make_range({}))
    assert outcome.reason_code is Reason.TRANSIENT


@pytest.mark.parametrize("seed", range(12))
def test_a_commit_is_never_slower_than_itself_on_a_warming_machine(make_problem, make_range, run_to_end, seed):
    """lattice#714: base first, head second made 56 false failures of a commit against itself."""
    world = make_range({}, slope=0.01, seed=seed)
    outcome, _ = run_to_end(make_problem(20, alarm_effect=0.03, alarm_effect_se=0.005), world)
    assert outcome.verdict is Verdict.NO_CHANGE


def test_the_first_commit_that_builds_again_is_not_blamed_alone(make_problem, make_range, run_to_end):
    """catapult#3895: commits 10 to 17 do not build; the step is among them."""
    world = make_range({13: 0.14}, broken=frozenset(range(10, 18)))
    outcome, _ = run_to_end(make_problem(30), world)
    assert outcome.verdict is Verdict.RANGE
    assert outcome.positions == tuple(range(10, 19))


@pytest.mark.parametrize("seed", range(5))
def test_tiny_differences_between_builds_are_not_culprits(make_problem, make_range, run_to_end, seed):
    """catapult#3892: so many points that four culprits were "significant" where there was one."""
    world = make_range({17: 0.05}, build_offset_sd=0.002, seed=seed)
    task = make_problem(32, alarm_effect=0.05, alarm_effect_se=0.005, build_offset_sd=0.002)
    outcome, _ = run_to_end(task, world)
    assert outcome.positions == (17,)


def test_a_pin_bump_is_one_candidate_and_its_inner_range_another(make_problem, make_range, run_to_end):
    """catapult#2643, pytorch#123597: the culprit is a bump that brings 146 commits."""
    outer, _ = run_to_end(make_problem(12), make_range({5: 0.14}))
    assert (outer.blames[0].lo, outer.blames[0].hi) == (4, 5)
    inner, _ = run_to_end(make_problem(146), make_range({99: 0.14}))
    assert inner.positions == (99,)


@pytest.mark.parametrize("culprit", [1, 2, 30, 31])
def test_the_ends_are_not_off_by_one(make_problem, make_range, run_to_end, culprit):
    """cargo-bisect-rustc#123."""
    outcome, _ = run_to_end(make_problem(31), make_range({culprit: 0.14}))
    assert outcome.positions == (culprit,)


def test_commits_that_do_not_build_are_stepped_over(make_problem, make_range, run_to_end):
    """gitgitgadget/git#439: commits inside a branch do not build; the ones around them answer."""
    world = make_range({20: 0.14}, broken=frozenset({3, 4, 5, 10, 11, 12, 13, 16}))
    outcome, log = run_to_end(make_problem(24), world)
    assert outcome.positions == (20,)
    failed = [e.position for e in log if isinstance(e, Failure)]
    assert len(failed) == len(set(failed))


def test_a_time_of_a_stale_build_does_not_count(make_problem):
    """tritonparse#311: an old build folder was measured under a new commit's name."""
    task = make_problem(4)
    task = replace(task, candidates=tuple(replace(c, build=f"key{c.position}") for c in task.candidates))
    stale = [Observation(1, "m", "e", p, "key0", 1e-3, "ends") for p in (0, 4, 4, 0)]
    seen = posterior(task, stale)
    assert seen.rejected == 2
    assert seen.none == pytest.approx(posterior(task, []).none)


def test_numbers_of_another_commit_are_not_reused_after_a_restart(make_problem, make_range, run_to_end):
    """goldenmatch#2591."""
    task = make_problem(8)
    task = replace(task, candidates=tuple(replace(c, build=f"build{c.position}") for c in task.candidates))
    outcome, log = run_to_end(task, make_range({5: 0.14}))
    foreign = [
        Observation(900, "m", "env", 3, "build6", 2e-3, "search"),
        Observation(900, "m", "env", 5, "build6", 1e-3, "search"),
    ]
    assert next_step(task, [*log, *foreign]).positions == outcome.positions
    assert posterior(task, [*log, *foreign]).rejected == 2


@pytest.mark.parametrize("seed", range(8))
def test_lost_runs_never_lead_to_a_random_commit(make_problem, make_range, run_to_end, seed):
    """syzkaller#1051: 60 % of the runs were lost to the infrastructure."""
    outcome, _ = run_to_end(make_problem(32), make_range({21: 0.14}, failing=0.6, seed=seed))
    assert outcome.verdict is Verdict.INCONCLUSIVE or 21 in outcome.positions
    assert outcome.verdict in {Verdict.INCONCLUSIVE, Verdict.CULPRIT, Verdict.RANGE}


def test_a_machine_that_always_fails_ends_the_bisection(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(32), make_range({21: 0.14}, failing=1.0))
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_an_infrastructure_failure_is_not_a_bad_commit(make_problem):
    task = make_problem(8)
    before = posterior(task, [])
    after = posterior(task, [Failure(4, FailureKind.INFRASTRUCTURE), Failure(5, "crash"), Failure(6, "build")])
    assert after.commits == before.commits
