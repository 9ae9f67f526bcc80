import math
import random

import pytest

from runners.measure import protocol
from runners.measure.protocol import Clock, Flag, WarmUp
from service.contract import ProtocolParams, SampleBlock


def block(process=0, order=0, *, launch_s=2e-3, canary_s=1e-3, off_cpu=0.0, n=5, flags=()):
    wall = launch_s / (1 - off_cpu)
    return SampleBlock(process, order, (wall,) * n, (launch_s,) * n, canary_s, canary_s, flags)


def blocks_of(process_values, *, per_process=3, **common):
    return [block(p, o, launch_s=v, **common) for p, v in enumerate(process_values) for o in range(per_process)]


def test_the_figure_is_the_median_over_processes_of_kernel_over_canary_in_reference_seconds():
    figure = protocol.history_figure(blocks_of([2e-3, 2.1e-3, 9e-3]), threads=1, reference_s=2e-3)
    assert figure.value_s == pytest.approx(4.2e-3)
    assert figure.processes == 3


def test_a_slow_machine_leaves_the_figure_alone():
    slow = [block(p, o, launch_s=2e-3 * s, canary_s=1e-3 * s) for p, s in enumerate([1, 1.5, 3, 1.2]) for o in range(3)]
    figure = protocol.history_figure(slow, threads=1, reference_s=1e-3)
    assert figure.value_s == pytest.approx(2e-3)
    assert figure.half_width_s == pytest.approx(0.0, abs=1e-12)


def test_the_interval_is_taken_over_processes_not_over_launches():
    rng = random.Random(1)
    spread = [2e-3 * math.exp(rng.gauss(0, 0.02)) for _ in range(5)]
    few = protocol.history_figure(blocks_of(spread, per_process=2), threads=1, reference_s=1e-3)
    many = protocol.history_figure(blocks_of(spread, per_process=50), threads=1, reference_s=1e-3)
    assert many.half_width_s == pytest.approx(few.half_width_s)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = random.Random(7)
    covered = 0
    for _ in range(600):
        values = [2e-3 * math.exp(rng.gauss(0, 0.02)) for _ in range(6)]
        figure = protocol.history_figure(blocks_of(values, per_process=1), threads=1, reference_s=1e-3)
        covered += abs(figure.value_s - 2e-3) <= figure.half_width_s
    assert 0.93 <= covered / 600 <= 0.99


def test_one_process_shows_no_spread_and_so_has_no_interval():
    assert protocol.history_figure(blocks_of([2e-3]), threads=1, reference_s=1e-3).half_width_s is None


@pytest.mark.parametrize(("off_cpu", "threads", "clock"), [(0.01, 1, "wall"), (0.1, 1, "cpu"), (0.1, 4, "wall")])
def test_the_cpu_clock_judges_only_single_threaded_kernels_whose_core_was_shared(off_cpu, threads, clock):
    figure = protocol.history_figure(blocks_of([2e-3] * 4, off_cpu=off_cpu), threads=threads, reference_s=1e-3)
    assert figure.clock == clock
    assert (Flag.CONTENDED in figure.flags) == (off_cpu > 0.02)


def test_on_the_cpu_clock_neighbours_do_not_move_the_figure():
    shared = [block(p, o, off_cpu=0.1 * p) for p in range(5) for o in range(3)]
    figure = protocol.history_figure(shared, threads=1, reference_s=1e-3)
    assert figure.clock is Clock.CPU
    assert figure.value_s == pytest.approx(2e-3)


@pytest.mark.parametrize("bad", [0.0, -1e-3, math.nan, math.inf])
def test_impossible_times_are_left_out_and_flagged(bad):
    good = blocks_of([2e-3] * 4)
    lying = SampleBlock(1, 9, (2e-3, bad), (2e-3, 2e-3), 1e-3, 1e-3)
    figure = protocol.history_figure([*good, lying], threads=1, reference_s=1e-3)
    assert figure.value_s == pytest.approx(2e-3)
    assert Flag.IMPLAUSIBLE in figure.flags
    assert protocol.history_figure([lying], threads=1, reference_s=1e-3) is None


def test_throttled_blocks_are_left_out_flagged_and_too_many_end_the_figure():
    quiet = [block(p, o) for p, own in enumerate((1, 1, 5, 5)) for o in range(own)]
    hot = [block(p, o, launch_s=9e-3, flags=("throttled",)) for p in (0, 1) for o in (8, 9)]
    figure = protocol.history_figure([*quiet, *hot], threads=1, reference_s=1e-3)
    assert figure.value_s == pytest.approx(2e-3)
    assert Flag.THROTTLED in figure.flags
    assert Flag.IMPLAUSIBLE not in figure.flags
    more = [block(p, 9, launch_s=9e-3, flags=("throttled",)) for p in range(4)]
    assert protocol.history_figure([*quiet, *hot, *more], threads=1, reference_s=1e-3) is None
    assert protocol.mostly_throttled([*quiet, *hot, *more])


def test_no_kernel_counts_as_warm_before_the_least_time():
    steady = protocol.warm_up(lambda: 1e-3, WarmUp(0.01, 0.005, 2.0, least_s=0.3))
    assert steady.settled
    assert 0.3 <= steady.spent_s < 0.33


def test_a_drift_over_the_run_is_flagged_and_noise_is_not():
    rng = random.Random(3)
    noise = [rng.gauss(0, 0.005) for _ in range(30)]
    assert not protocol.drifts(noise)
    assert protocol.drifts([x + 0.05 * i / 30 for i, x in enumerate(noise)])


def test_two_camps_of_processes_are_bimodal_and_one_odd_process_is_not():
    assert protocol.bimodal([0.0, 0.001, 0.05, 0.051, 0.002])
    assert not protocol.bimodal([0.0, 0.001, 0.002, 0.003, 0.05])
    assert not protocol.bimodal([0.0, 0.01, 0.02, 0.03, 0.04])


def test_stopping_waits_for_enough_processes_and_a_narrow_interval():
    params = ProtocolParams(processes=10, target_half_width=0.01)

    def after(values):
        return protocol.enough(protocol.history_figure(blocks_of(values), threads=1, reference_s=1e-3), params)

    assert not after([2e-3, 2e-3, 2e-3])
    assert after([2e-3, 2.001e-3, 2e-3, 2.001e-3])
    assert not after([2e-3, 2.1e-3, 2e-3, 2.2e-3])
    assert not protocol.enough(None, params)


def test_a_slow_first_call_is_not_what_a_launch_costs():
    times = iter([0.5] + [2e-3] * 100)
    steady = protocol.warm_up(lambda: next(times), WarmUp(0.002, 0.03, 1.0))
    assert steady.settled
    assert steady.launch_s == pytest.approx(2e-3)


def test_warm_up_waits_until_a_clock_ramp_is_over():
    def ramp():
        now = 0.0
        while True:
            seconds = 2e-3 * (1 + max(0.0, 1 - now / 0.150))
            now += seconds
            yield seconds

    times = ramp()
    steady = protocol.warm_up(lambda: next(times), WarmUp(0.010, 0.005, 2.0))
    assert steady.settled
    assert steady.spent_s > 0.150
    assert steady.launch_s == pytest.approx(2e-3, rel=0.02)


def test_a_kernel_that_never_settles_is_said_to_be_unsteady():
    rng = random.Random(5)
    steady = protocol.warm_up(lambda: rng.uniform(2e-3, 4e-3), WarmUp(0.002, 0.0005, 0.1))
    assert not steady.settled


def test_a_child_that_claims_more_time_than_passed_or_hides_most_of_it_is_caught():
    assert protocol.claims_too_much(claimed_s=0.1, request_s=0.05)
    assert not protocol.claims_too_much(claimed_s=0.05, request_s=0.06)
    assert protocol.claims_too_little(claimed_s=0.001, request_s=0.2, launches=10)
    assert not protocol.claims_too_little(claimed_s=0.1, request_s=0.2, launches=10)


@pytest.mark.parametrize(("launch_s", "launches"), [(0.01, 3), (1e-3, 30), (1e-9, 400), (0.0, 400)])
def test_a_block_is_filled_with_launches_within_bounds(launch_s, launches):
    assert protocol.launches_for(launch_s, 0.03) == launches
