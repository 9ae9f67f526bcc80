"""Whether a runner may be trusted: its canary against its own past, hard faults, A/A."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from service.contract import RunReason
from service.domain import health
from service.domain.health import Finding, JobHealth, Judgement, Past
from service.domain.states import JobVerdict, Standing

GOOD = JobHealth(compute_canary_s=1e-3, memory_canary_s=2e-3)
SLOW = replace(GOOD, compute_canary_s=1.03e-3)
PAST = Past(compute_canaries_s=[1e-3] * 30, memory_canaries_s=[2e-3] * 30)
TRUSTED = Judgement(Standing.TRUSTED, "")
QUARANTINED = Judgement(Standing.QUARANTINED, "its compute canary is +9.0% off its own median")


def standing(jobs, alarmed=(), *, before=TRUSTED, past=PAST):
    """Hand in jobs one by one, as reports come."""
    findings = []
    for job in jobs:
        findings.append(health.judge_job(job, past))
        before = health.judge(before, findings, alarmed)
    return before


def test_three_slow_canaries_in_a_row_quarantine_and_two_do_not():
    assert standing([GOOD, SLOW, SLOW]).standing is Standing.TRUSTED
    assert standing([GOOD, SLOW, GOOD, SLOW, SLOW]).standing is Standing.TRUSTED
    found = standing([SLOW, SLOW, SLOW])
    assert found.standing is Standing.QUARANTINED
    assert "+3.0%" in found.reason


def test_a_canary_that_is_too_fast_is_as_odd_as_one_that_is_too_slow():
    assert standing([replace(GOOD, compute_canary_s=0.97e-3)] * 3).standing is Standing.QUARANTINED


def test_memory_may_move_a_little_more_than_compute():
    at = lambda share: [replace(GOOD, memory_canary_s=2e-3 * share)] * 3  # noqa: E731
    assert standing(at(1.025)).standing is Standing.TRUSTED
    assert standing(at(1.035)).standing is Standing.QUARANTINED


def test_a_noisy_host_is_measured_against_its_own_spread():
    rng = random.Random(4)
    noisy = [1e-3 * (1 + rng.gauss(0, 0.03)) for _ in range(60)]
    past = replace(PAST, compute_canaries_s=noisy)
    assert standing([replace(GOOD, compute_canary_s=1.08e-3)] * 3, past=past).standing is Standing.TRUSTED
    assert standing([replace(GOOD, compute_canary_s=1.30e-3)] * 3, past=past).standing is Standing.QUARANTINED


def test_rare_slow_jobs_widen_the_limit_where_a_robust_deviation_would_not_see_them():
    rng = random.Random(4)
    values = [1e-3 * (1 + (0.08 if rng.random() < 0.15 else 0.001) * rng.random()) for _ in range(200)]
    assert health.own_limit(values, floor=0.02) > 0.07


def test_a_past_keeps_what_came_and_went_and_leaves_out_what_led_to_a_quarantine():
    clean, bad = JobVerdict.CLEAN, JobVerdict.BAD
    assert health.without_streaks([clean, bad, bad, clean, bad]) == [0, 1, 2, 3]
    assert health.without_streaks([clean, bad, bad, bad, clean]) == [0, 4]
    assert health.without_streaks([]) == []


def test_what_neighbours_explain_counts_neither_way():
    disturbed = replace(SLOW, contended=True)
    assert health.judge_job(disturbed, PAST).verdict is JobVerdict.UNJUDGED
    assert standing([disturbed] * 5).standing is Standing.TRUSTED
    assert standing([SLOW, disturbed, SLOW, disturbed, SLOW]).standing is Standing.QUARANTINED
    assert health.judge_job(replace(GOOD, contended=True), PAST).verdict is JobVerdict.CLEAN


@pytest.mark.parametrize(
    "change",
    [{"ecc_uncorrected": 1}, {"xid_errors": 1}, {"pcie_width": 8}, {"slowest_nvml_call_s": 2.0}],
    ids=str,
)
def test_a_hard_fault_quarantines_at_once_even_when_contended(change):
    past = replace(PAST, widest_pcie=16)
    for contended in (False, True):
        job = replace(GOOD, contended=contended, **change)
        assert standing([GOOD] * 5 + [job], past=past).standing is Standing.QUARANTINED


def test_memory_errors_that_were_known_before_are_no_news():
    old = replace(GOOD, ecc_uncorrected=2)
    assert health.judge_job(old, replace(PAST, ecc_uncorrected=2)).verdict is JobVerdict.CLEAN
    assert health.judge_job(old, replace(PAST, ecc_uncorrected=1)).verdict is JobVerdict.FAULT
    assert health.judge_job(old, replace(PAST, ecc_uncorrected=7)).verdict is JobVerdict.FAULT  # reset, and again two


def test_ten_clean_jobs_bring_a_runner_back_and_nine_do_not():
    assert standing([SLOW] * 3 + [GOOD] * 9).standing is Standing.QUARANTINED
    assert standing([SLOW] * 3 + [GOOD] * 10).standing is Standing.TRUSTED
    assert standing([SLOW] * 3 + [GOOD] * 9 + [SLOW] + [GOOD] * 9).standing is Standing.QUARANTINED


def test_what_began_a_quarantine_stays_its_reason():
    worse = Finding(JobVerdict.BAD, "its compute canary is +50.0% off its own median")
    assert health.judge(QUARANTINED, [worse] * 5, ()).reason == QUARANTINED.reason


def test_too_many_aa_alarms_make_verdicts_advisory_but_only_over_a_full_window():
    assert standing([GOOD], [True] * 7 + [False] * 53).standing is Standing.ADVISORY
    assert standing([GOOD], [True] * 6 + [False] * 54).standing is Standing.TRUSTED
    assert standing([GOOD], [True] * 5).standing is Standing.TRUSTED
    advisory = Judgement(Standing.ADVISORY, "7 of its last 60 A/A comparisons alarmed")
    assert standing([GOOD], [True] * 6 + [False] * 54, before=advisory).standing is Standing.TRUSTED


def test_the_alarm_rate_looks_at_the_last_sixty_with_an_exact_interval():
    rate = health.alarm_rate([True] * 40 + [False] * 57 + [True] * 3)
    assert (rate.alarms, rate.comparisons) == (3, 60)
    assert rate.low == pytest.approx(0.0104, abs=2e-4)  # Clopper-Pearson for 3 of 60
    assert rate.high == pytest.approx(0.1392, abs=2e-4)
    assert health.alarm_rate([]) is None
    assert health.alarm_rate([False]).low == 0.0
    assert health.alarm_rate([True]).high == 1.0


def test_one_comparison_in_twenty_is_an_aa_and_always_the_same_ones():
    drawn = [run_id for run_id in range(10_000) if health.is_standing_aa(run_id)]
    assert len(drawn) == pytest.approx(500, abs=80)
    assert drawn == [run_id for run_id in range(10_000) if health.is_standing_aa(run_id)]


def test_a_job_that_ended_before_its_first_canary_is_no_clean_one():
    assert health.judge_job(JobHealth(), PAST).verdict is JobVerdict.UNJUDGED
    assert health.judge_job(JobHealth(xid_errors=1), PAST).verdict is JobVerdict.FAULT


def test_a_runner_without_a_past_is_not_judged_by_it():
    assert health.own_median_s([1e-3] * 9) is None
    assert health.own_median_s([1e-3] * 10) == 1e-3
    assert standing([SLOW] * 3, past=Past()).standing is Standing.TRUSTED


def test_what_a_runner_may_measure_follows_from_its_standing():
    assert health.reasons_for(Standing.QUARANTINED) == {RunReason.CANARY}
    advisory = health.reasons_for(Standing.ADVISORY)
    assert {RunReason.PUSH, RunReason.AA, RunReason.CANARY} <= advisory
    assert not advisory & {RunReason.CONFIRM, RunReason.VERIFY, RunReason.BISECTION, RunReason.PULL_REQUEST}
    assert health.reasons_for(Standing.TRUSTED) == set(RunReason)
