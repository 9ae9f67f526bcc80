"""Warm-up and blocks of a GPU child, against scripted events."""

import dataclasses

import pytest

from runners.api import Cache
from runners.device.cuda.device import WARM_UP
from runners.device.cuda.stopwatch import CudaStopwatch
from runners.device.cuda.timer import CudaTimer
from runners.measure.houses import Prepared
from tests.unit.runners.device.cuda.scripted import CachedKernel, ScriptedEvents


def prepared(events, **more):
    return Prepared(run=events.launch, recheck=lambda _seed: None, **more)


def warmed(events, kernel, *, launches=None, spec=WARM_UP):
    stopwatch = CudaStopwatch(CudaTimer(events))
    return stopwatch, stopwatch.warm(kernel, spec=spec, clock="wall", launches=launches)


def test_a_warm_up_times_long_intervals_and_tells_how():
    events = ScriptedEvents(kernel_s=4e-6, launch_cost_s=3e-6)
    _, found = warmed(events, prepared(events))
    assert found["launch_s"] == pytest.approx(4e-6, rel=0.01)
    assert found["settled"]
    assert (found["method"], found["launches"], found["symbols"]) == ("graph", 128, "gemm_mma_bf16")
    assert found["sample_s"] > 128 * 4e-6


def test_a_clock_that_ramps_up_is_waited_out_for_at_least_as_long_as_the_device_asks():
    events = ScriptedEvents()
    ramp = lambda: 1e-3 * (1 + 0.5 * max(0.0, 1 - events.device / 0.4))  # noqa: E731
    kernel = Prepared(run=lambda: events.launch(ramp), recheck=lambda _seed: None)
    _, found = warmed(events, kernel)
    assert found["settled"]
    assert found["launch_s"] == pytest.approx(1e-3, rel=0.01)
    assert events.device > 0.4


def test_no_warm_up_is_over_before_the_least_time():
    events = ScriptedEvents(kernel_s=1e-3)
    warmed(events, prepared(events), spec=dataclasses.replace(WARM_UP, least_s=0.8))
    assert events.device >= 0.8


def test_a_kernel_that_never_settles_is_left_at_the_limit():
    events = ScriptedEvents()
    slower = lambda: 1e-3 * (1 + events.device)  # noqa: E731
    kernel = Prepared(run=lambda: events.launch(slower), recheck=lambda _seed: None)
    _, found = warmed(events, kernel, spec=dataclasses.replace(WARM_UP, limit_s=1.0))
    assert not found["settled"]


def test_a_block_answers_with_raw_seconds_and_everything_that_bears_on_them():
    events = ScriptedEvents(kernel_s=4e-6)
    kernel = prepared(events)
    stopwatch, _ = warmed(events, kernel, launches=64)
    begun_s = events.host
    found = stopwatch.block(kernel, count=5)
    assert found["wall_s"] == pytest.approx([4e-6] * 5, rel=0.01)
    assert found["cpu_s"] == found["wall_s"]
    assert (found["inner"], found["host_bound"]) == (64, 0)
    assert sum(found["wall_s"]) * 64 + found["between_s"] == pytest.approx(events.host - begun_s)
    assert (found["working_set_bytes"], found["cold_bytes"]) == (0, 0)


def test_a_host_that_is_late_is_counted_in_its_block_only():
    events = ScriptedEvents(kernel_s=2e-6, refuses="it waits for the device")

    def waits():
        events.launch()
        events.wait()

    kernel = Prepared(run=waits, recheck=lambda _seed: None)
    stopwatch, found = warmed(events, kernel)
    assert (found["method"], found["reason"]) == ("plain", "it waits for the device")
    assert stopwatch.block(kernel, count=5)["host_bound"] == 6  # the untimed one too


def test_a_cold_block_says_what_was_touched_between_two_uses():
    events = ScriptedEvents()
    cached = CachedKernel(events, buffer_bytes=10 << 20, warm_s=10e-6, cold_s=30e-6)
    kernel = Prepared(
        run=cached.prepare(),
        recheck=lambda _seed: None,
        again=cached.prepare,
        buffer_bytes=10 << 20,
        cache=Cache.COLD,
    )
    stopwatch, _ = warmed(events, kernel)
    found = stopwatch.block(kernel, count=4)
    assert found["wall_s"] == pytest.approx([30e-6] * 4, rel=0.01)
    assert found["working_set_bytes"] >= found["cold_bytes"] > 0
