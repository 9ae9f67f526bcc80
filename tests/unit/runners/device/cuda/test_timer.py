"""The event timer against scripted events."""

import pytest

from runners.device.cuda.timer import (
    EVENT_RESOLUTION_S,
    CudaTimer,
    Interval,
    launches_per_sample,
    rotation_count,
)
from tests.unit.runners.device.cuda.scripted import ScriptedEvents


def test_behind_the_delay_a_short_kernel_is_timed_without_the_hosts_pauses():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=3e-6)
    timer = CudaTimer(events)
    launches = timer.time_launches(events.launch, count=3, inner=20)
    assert launches.wall_s == pytest.approx([2e-6] * 3)
    assert timer.host_bound == 0


def test_the_hosts_clock_never_judges_a_kernel_of_the_device():
    events = ScriptedEvents(kernel_s=1e-3, launch_cost_s=1e-6)
    launches = CudaTimer(events).time_launches(events.launch, count=3, inner=1)
    assert launches.cpu_s == launches.wall_s


def test_a_host_that_is_late_gets_a_longer_delay_and_the_sample_is_taken_again():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=10e-6)
    timer = CudaTimer(events)
    launches = timer.time_launches(events.launch, count=3, inner=20)
    assert launches.wall_s == pytest.approx([2e-6] * 3)
    assert timer.host_bound == 0
    assert events.launches > 3 * 20


def test_a_host_that_never_gets_ahead_is_said():
    events = ScriptedEvents(kernel_s=2e-6)

    def waits():
        events.launch()
        events.wait()

    timer = CudaTimer(events)
    timer.time_launches(waits, count=3, inner=4)
    assert timer.host_bound == 3


def test_a_cold_sample_flushes_before_each_and_a_warm_one_never():
    events = ScriptedEvents(kernel_s=1e-3)
    CudaTimer(events).time_interval(Interval(events.launch, calls=1, launches=1, flush_bytes=100), count=3)
    assert events.flushed == [100, 100, 100]
    warm = ScriptedEvents(kernel_s=1e-3)
    CudaTimer(warm).time_launches(warm.launch, count=3, inner=1)
    assert warm.flushed == []


@pytest.mark.parametrize("launch_s", [0.3e-6, 2e-6, 5e-6, 49e-6, 51e-6, 1e-3, 0.1])
def test_a_sample_is_long_against_the_events_resolution(launch_s):
    launches = launches_per_sample(launch_s)
    assert launches * launch_s >= 100 * EVENT_RESOLUTION_S
    assert launches & (launches - 1) == 0
    assert launches == 1 or launches * launch_s <= 1.1e-3


@pytest.mark.parametrize("launch_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lying_timer_asks_for_no_more_than_a_queue_holds(launch_s):
    assert launches_per_sample(launch_s) == 1024


@pytest.mark.parametrize(("buffer_bytes", "copies"), [(10 << 20, 25), (1 << 30, 1), (0, 1)])
def test_small_buffers_are_rotated_until_they_exceed_the_cache(buffer_bytes, copies):
    assert rotation_count(buffer_bytes, 50 << 20) == copies
