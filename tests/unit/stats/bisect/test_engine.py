"""The whole decision, from the alarm to the verdict, on ranges whose truth is known."""

from __future__ import annotations

import pytest

from service.stats.bisect import Failure, Observation, Outcome, Phase, Probe, Reason, Verdict, Wait, next_step


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
    from dataclasses import replace

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
