import math
import random

import pytest

from runners.measure import pairs
from runners.measure.pairs import Verdict
from runners.measure.protocol import Clock, Flag
from service.contract import SampleBlock


def sample(process, order, seconds, *, cpu_s=None, flags=()):
    cpu_s = seconds if cpu_s is None else cpu_s
    return SampleBlock(process, order, (seconds,) * 3, (cpu_s,) * 3, 1e-3, 1e-3, flags)


def interleaved(true_log_ratio, *, count, quartets=3, pair_sd=0.01, rng=None, by_position=(0, 0, 0, 0), flags=()):
    """Blocks of both sides in coin-tossed palindromes; `by_position` slows each place of a quartet."""
    rng = rng or random.Random(0)
    base, head = [], []
    for process in range(count):
        mode = rng.gauss(0, pair_sd)
        for quartet in range(quartets):
            order = rng.choice(["ABBA", "BAAB"])
            for place, name in enumerate(order):
                log_s = by_position[place] + ((true_log_ratio + mode) if name == "B" else 0.0)
                block = sample(process, quartet * 4 + place, 5e-3 * math.exp(log_s), flags=flags)
                (head if name == "B" else base).append(block)
    return base, head


def judged(base, head, *, floor=0.01, last=True, family=1):
    return pairs.judge(base, head, threads=1, floor=floor, family=family, last=last)


def test_the_estimate_is_the_mean_over_pairs_of_the_median_over_quartets():
    base, head = interleaved(math.log(1.05), count=6, pair_sd=0.0)
    head[2] = sample(head[2].process, head[2].order, 50e-3)  # one foreign burst
    ratios = pairs.pair_log_ratios(base, head, Clock.WALL)
    assert ratios == pytest.approx([math.log(1.05)] * 6)


def test_a_penalty_for_whoever_runs_later_cancels_and_is_flagged():
    base, head = interleaved(0.0, count=10, pair_sd=0.0001, by_position=(0, 0.03, 0.06, 0.09))
    seen = judged(base, head)
    assert seen.ratio == pytest.approx(1.0, abs=1e-3)
    assert seen.verdict is Verdict.SAME
    assert Flag.SECOND_PENALTY in seen.flags


@pytest.mark.parametrize(("ratio", "verdict"), [(1.05, "regression"), (0.95, "improvement"), (1.0, "same")])
def test_clear_effects_get_their_word(ratio, verdict):
    base, head = interleaved(math.log(ratio), count=10, pair_sd=0.004)
    assert judged(base, head).verdict == verdict


def test_an_effect_below_the_floor_is_no_alarm():
    base, head = interleaved(math.log(1.005), count=20, pair_sd=0.0005)
    assert judged(base, head).verdict is Verdict.SAME


def test_noise_that_hides_the_answer_is_inconclusive_never_same():
    base, head = interleaved(0.0, count=10, pair_sd=0.05)
    assert judged(base, head, last=False).verdict is None
    assert judged(base, head, last=True).verdict is Verdict.INCONCLUSIVE


def test_four_pairs_never_carry_a_word():
    base, head = interleaved(math.log(2.0), count=4, pair_sd=0.001)
    assert judged(base, head).verdict is Verdict.INCONCLUSIVE
    assert judged(base[:1], head[:1]) is None


def test_looks_spend_five_per_cent_in_all_and_a_family_shares_it():
    assert sum(alpha for _, alpha in pairs.LOOKS) == pytest.approx(0.05)
    assert [pairs.alpha_after(n) for n in (5, 7, 10, 13, 40)] == [0.005, 0.01, 0.01, 0.015, 0.02]
    assert pairs.alpha_after(5, family=10) == pytest.approx(0.0005)


def test_sequential_looks_raise_false_alarms_in_at_most_five_per_cent():
    rng = random.Random(11)
    alarms = 0
    for _ in range(2000):
        logs = [rng.gauss(0, 0.03) for _ in range(40)]
        for count, alpha in pairs.LOOKS:
            verdict = pairs.look(logs[:count], floor=0.001, alpha=alpha, last=False)[2]
            if verdict is not None:
                alarms += verdict is not Verdict.SAME
                break
    assert alarms / 2000 <= 0.06  # 5 % and two standard errors


def test_one_pair_with_a_mode_of_its_own_does_not_alarm():
    base, head = interleaved(0.0, count=10, pair_sd=0.001)
    head = [sample(b.process, b.order, b.wall_s[0] * 1.2) if b.process == 3 else b for b in head]
    assert judged(base, head).verdict is not Verdict.REGRESSION


def test_throttled_quartets_are_dropped_whole_and_too_many_end_the_verdict():
    base, head = interleaved(0.0, count=10, pair_sd=0.001)
    one = [sample(b.process, b.order, 9e-3, flags=("throttled",)) if b.order < 4 else b for b in head]
    assert judged(base, one).ratio == pytest.approx(1.0, abs=2e-3)
    many = [sample(b.process, b.order, 9e-3, flags=("throttled",)) if b.order < 8 else b for b in head]
    assert judged(base, many).verdict is Verdict.INCONCLUSIVE


def test_both_sides_are_judged_on_the_cpu_clock_when_one_was_pushed_off_its_core():
    base, head = interleaved(0.0, count=10, pair_sd=0.001)
    head = [sample(b.process, b.order, b.wall_s[0] * 1.5, cpu_s=b.wall_s[0]) for b in head]
    seen = judged(base, head)
    assert seen.clock is Clock.CPU
    assert seen.verdict is Verdict.SAME
    assert Flag.CONTENDED in seen.flags


def test_a_power_cap_on_one_side_only_is_said():
    base, head = interleaved(0.0, count=10, pair_sd=0.001)
    head = [sample(b.process, b.order, b.wall_s[0], flags=("power_capped",)) for b in head]
    assert Flag.CLOCK_NOT_HELD in judged(base, head).flags
