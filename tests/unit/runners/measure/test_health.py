import random
from dataclasses import replace

import pytest

from runners.measure import health
from runners.measure.health import JobHealth, Standing

GOOD = JobHealth(compute_canary_s=1e-3, memory_canary_s=2e-3)
SLOW = replace(GOOD, compute_canary_s=1.03e-3)


def standing(jobs, alarmed=()):
    return health.judge(jobs, median_compute_s=1e-3, median_memory_s=2e-3, alarmed=alarmed)


def test_three_slow_canaries_in_a_row_quarantine_and_two_do_not():
    assert standing([GOOD, SLOW, SLOW]).standing is Standing.TRUSTED
    assert standing([GOOD, SLOW, GOOD, SLOW, SLOW]).standing is Standing.TRUSTED
    found = standing([SLOW, SLOW, SLOW])
    assert found.standing is Standing.QUARANTINED
    assert "+3.0%" in found.reason


def test_memory_may_move_a_little_more_than_compute():
    at = lambda share: [replace(GOOD, memory_canary_s=2e-3 * share)] * 3  # noqa: E731
    assert standing(at(1.025)).standing is Standing.TRUSTED
    assert standing(at(1.035)).standing is Standing.QUARANTINED


@pytest.mark.parametrize(
    "change",
    [{"ecc_uncorrected": 1}, {"xid_errors": 1}, {"pcie_narrowed": True}, {"slowest_nvml_call_s": 2.5}],
    ids=str,
)
def test_a_hard_fault_quarantines_at_once(change):
    assert standing([GOOD] * 5 + [replace(GOOD, **change)]).standing is Standing.QUARANTINED


def test_ten_clean_jobs_bring_a_runner_back_and_nine_do_not():
    assert standing([SLOW] * 3 + [GOOD] * 9).standing is Standing.QUARANTINED
    assert standing([SLOW] * 3 + [GOOD] * 10).standing is Standing.TRUSTED


def test_too_many_aa_alarms_make_verdicts_advisory_but_only_over_a_full_window():
    assert standing([GOOD], [True] * 7 + [False] * 53).standing is Standing.ADVISORY
    assert standing([GOOD], [True] * 6 + [False] * 54).standing is Standing.TRUSTED
    assert standing([GOOD], [True] * 5).standing is Standing.TRUSTED


def test_the_alarm_rate_looks_at_the_last_sixty_with_an_exact_interval():
    rate = health.alarm_rate([True] * 40 + [False] * 57 + [True] * 3)
    assert (rate.alarms, rate.comparisons) == (3, 60)
    assert rate.low == pytest.approx(0.0104, abs=2e-4)  # Clopper-Pearson for 3 of 60
    assert rate.high == pytest.approx(0.1392, abs=2e-4)
    assert health.alarm_rate([]) is None
    assert health.alarm_rate([False]).low == 0.0


def test_one_comparison_in_twenty_is_an_aa():
    rng = random.Random(0)
    assert sum(health.is_standing_aa(rng.random()) for _ in range(10_000)) == pytest.approx(500, abs=60)


def test_a_runner_without_a_past_is_not_judged_by_it():
    assert health.own_median_s([1e-3] * 9) is None
    assert health.own_median_s([1e-3] * 10) == 1e-3
    assert (
        health.judge([SLOW] * 3, median_compute_s=None, median_memory_s=None, alarmed=()).standing is Standing.TRUSTED
    )
