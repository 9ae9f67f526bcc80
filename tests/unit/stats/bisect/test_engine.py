"""The whole decision, from the alarm to the verdict, on ranges whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.stats.bisect import (
    Failure,
    Observation,
    Outcome,
    Phase,
    Probe,
    Reason,
    Verdict,
    Wait,
    next_step,
    outlook,
    posterior,
)


@pytest.mark.parametrize("culprit", range(1, 9))
def test_every_position_of_a_small_range_is_found_also_the_ends(make_problem, make_range, run_to_end, culprit):
    outcome, _ = run_to_end(make_problem(8), make_range({culprit: 0.14}))
    assert outcome.verdict is Verdict.CULPRIT
    assert outcome.positions == (culprit,)
    assert outcome.probability >= 0.95
    assert outcome.effect_low < 0.14 < outcome.effect_high


@pytest.mark.parametrize("sign", [1, -1])
def test_an_improvement_is_found_like_a_regression(make_problem, make_range, run_to_end, sign):
    outcome, _ = run_to_end(make_problem(6, alarm_effect=sign * 0.15), make_range({4: sign * 0.15}))
    assert outcome.positions == (4,)
    assert outcome.blames[0].sign == sign


def test_a_small_history_needs_few_batches(make_problem, make_range, run_to_end):
    world = make_range({3: -0.15})
    run_to_end(make_problem(4, alarm_effect=-0.15), world)
    assert len(world.asked) <= 5


def test_the_first_batch_is_abba_pairs_of_the_ends(make_problem):
    step = next_step(make_problem(5), [])
    assert isinstance(step, Probe)
    assert step.phase is Phase.ENDS
    assert step.order[:4] == (0, 5, 5, 0)


def test_equal_ends_blame_nobody(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(64), make_range({}))
    assert outcome.verdict is Verdict.NO_CHANGE
    assert outcome.positions == ()
    assert outcome.builds == 2


def test_a_range_of_broken_builds_is_named_as_a_range(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(8), make_range({5: 0.14}, broken=frozenset({4, 5})))
    assert outcome.verdict is Verdict.RANGE
    assert outcome.positions == (4, 5, 6)
    assert outcome.reason_code is Reason.UNBUILDABLE


def test_identical_code_needs_no_measurement(make_problem):

    task = make_problem(3)
    same = tuple(replace(c, same_as_parent=True) for c in task.candidates)
    outcome = next_step(replace(task, candidates=same), [])
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.NO_CHANGE
    assert outcome.reason_code is Reason.IDENTICAL_CODE


def test_the_answer_depends_on_the_log_only(make_problem, make_range, run_to_end):
    task = make_problem(16)
    outcome, log = run_to_end(task, make_range({9: 0.14}, seed=7))
    assert next_step(task, list(log)) == outcome
    ends = [i for i in range(1, len(log)) if log[i].batch != log[i - 1].batch]
    for cut in ends:
        assert next_step(task, log[:cut]) == next_step(task, tuple(log[:cut]))


def test_workers_get_different_commits(make_problem, make_range):
    task = make_problem(64, workers=4)
    world = make_range({40: 0.14})
    log: list[Observation | Failure] = list(world.run(next_step(task, []), 1))
    running: list[Probe] = []
    for _ in range(4):
        step = next_step(task, log, running)
        assert isinstance(step, Probe)
        running.append(step)
    assert len({p.position for p in running}) == 4


def test_wait_while_the_only_open_question_runs(make_problem):
    task = make_problem(2, environment_changed=True)
    first = next_step(task, [])
    assert isinstance(next_step(task, [], [first]), Wait)


def test_results_that_exist_are_not_measured_again(make_problem, make_range):
    task = make_problem(4)
    world = make_range({3: 0.14})
    earlier = [replace(e, phase=Phase.EARLIER) for e in world.run(next_step(task, []), 7)]
    step = next_step(task, earlier)
    assert isinstance(step, Probe)
    assert step.phase is Phase.SEARCH


def test_merged_commits_are_never_built_or_blamed(make_problem, make_range, run_to_end):
    task = make_problem(12)
    same = {2, 3, 6, 7, 8, 11}
    task = replace(task, candidates=tuple(replace(c, same_as_parent=c.position in same) for c in task.candidates))
    outcome, log = run_to_end(task, make_range({5: 0.14}))
    assert outcome.positions == (5,)
    assert not same & {e.position for e in log}
    assert all(outcome.posterior[p - 1] == 0.0 for p in same)


def test_two_culprits_are_both_named_the_larger_first(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(24, alarm_effect=0.2), make_range({6: 0.08, 17: 0.12}))
    assert outcome.verdict is Verdict.CULPRITS
    assert [b.positions for b in outcome.blames] == [(17,), (6,)]


def test_a_regression_that_was_fixed_does_not_hide_the_lasting_one(make_problem, make_range, run_to_end):
    outcome, _ = run_to_end(make_problem(24), make_range({4: 0.14, 11: -0.14, 19: 0.14}))
    assert 19 in outcome.positions


def test_an_exhausted_budget_is_inconclusive_and_says_what_it_takes(make_problem, make_range, run_to_end):
    task = make_problem(64, alarm_effect=0.01, alarm_effect_se=0.003, budget_s=80.0)
    outcome, log = run_to_end(task, make_range({30: 0.01}))
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.reason_code is Reason.BUDGET
    assert 30 in outcome.positions
    assert "device-seconds" in outcome.needed
    assert len(log) * task.measure_cost_s <= task.budget_s


def test_a_step_under_half_the_noise_is_said_before_the_start(make_problem):
    assert outlook(make_problem(16, alarm_effect=0.004)).warning
    assert not outlook(make_problem(16)).warning


def test_a_sandwich_precedes_every_blame(make_problem, make_range, run_to_end):
    world = make_range({9: 0.14})
    run_to_end(make_problem(16), world)
    last = world.asked[-1]
    assert last.phase is Phase.SANDWICH
    assert set(last.order) == {8, 9}
    assert last.order[:4] in {(8, 9, 9, 8), (9, 8, 8, 9)}


def test_every_batch_has_partners(make_problem, make_range, run_to_end):
    world = make_range({9: 0.03}, noise_sd=0.02)
    run_to_end(make_problem(16, alarm_effect=0.03, noise_sd=0.02, budget_s=4000.0), world)
    assert all(len(set(p.order)) >= 2 for p in world.asked)


def test_the_machine_of_another_day_is_not_compared(make_problem):
    task = make_problem(4)
    slow_day = [Observation(1, "m", "e", 4, "", 1.3e-3, Phase.EARLIER)] * 6
    fast_day = [Observation(2, "m", "e", 0, "", 1.0e-3, Phase.EARLIER)] * 6
    seen = posterior(task, [*slow_day, *fast_day])
    assert seen.none == pytest.approx(posterior(task, []).none, abs=0.03)
