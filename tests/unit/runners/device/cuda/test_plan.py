"""How a workload is timed: graph or plain launches with a reason, warm or cold (fault F12)."""

import pytest

from runners.api import Cache
from runners.device.cuda.plan import COPIES_MAX, Method, Wanted, make_plan, symbols_of
from runners.device.cuda.timer import CudaTimer
from tests.unit.runners.device.cuda.scripted import CachedKernel, ScriptedEvents, dot_of

MIB = 1 << 20


def plan_of(events, *, run=None, again=None, buffer_bytes=0, cache=Cache.WARM, launch_s=2e-6, launches=None):
    wanted = Wanted(run=run or events.launch, again=again, buffer_bytes=buffer_bytes, cache=cache, launches=launches)
    return make_plan(CudaTimer(events), wanted, launch_s=launch_s)


def test_a_short_kernel_is_replayed_from_a_graph_without_a_gap_of_the_host():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=50e-6)
    timer = CudaTimer(events)
    plan = plan_of(events)
    assert (plan.method, plan.reason) == (Method.GRAPH, "")
    assert plan.interval.launches == plan.asked == 256
    assert plan.symbols == ("gemm_mma_bf16",)
    assert timer.time_interval(plan.interval, count=3).wall_s == pytest.approx([2e-6] * 3, rel=0.01)
    assert timer.host_bound == 0


def test_what_cannot_be_captured_is_launched_plainly_with_its_reason():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=2e-6, refuses="it allocates memory at each launch")
    plan = plan_of(events)
    assert (plan.method, plan.reason) == (Method.PLAIN, "it allocates memory at each launch")
    assert plan.interval.launches == plan.asked // 8 == 32
    assert CudaTimer(events).time_interval(plan.interval, count=2).wall_s == pytest.approx([2e-6] * 2)


def test_launches_on_a_stream_of_their_own_leave_the_graph_empty_and_are_found_out():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=2e-6, elsewhere=True)
    plan = plan_of(events)
    assert plan.method is Method.PLAIN
    assert "stream of their own" in plan.reason


def test_a_driver_that_describes_no_nodes_is_believed_when_the_replay_takes_its_time():
    events = ScriptedEvents(kernel_s=2e-6)
    capture = events.capture
    events.capture = lambda runs: type(capture(runs))(capture(runs).replay, "")
    assert plan_of(events).method is Method.GRAPH


def test_both_sides_of_a_pair_enclose_the_same_number_of_launches():
    slow, fast = ScriptedEvents(kernel_s=70e-6), ScriptedEvents(kernel_s=50e-6)
    first = plan_of(slow, launch_s=70e-6)
    assert plan_of(fast, launch_s=50e-6).interval.launches != first.interval.launches
    assert plan_of(fast, launch_s=50e-6, launches=first.asked).interval.launches == first.interval.launches


@pytest.mark.parametrize("refuses", ["", "it waits for the device"], ids=["graph", "plain"])
def test_f12_buffers_that_fit_the_cache_are_rotated_until_none_is_found_in_it(refuses):
    events = ScriptedEvents(launch_cost_s=1e-6, refuses=refuses)
    kernel = CachedKernel(events, buffer_bytes=10 * MIB, warm_s=10e-6, cold_s=30e-6)
    plan = plan_of(
        events,
        run=kernel.prepare(),
        again=kernel.prepare,
        buffer_bytes=10 * MIB,
        cache=Cache.COLD,
        launch_s=10e-6,
    )
    assert kernel.copies == 25
    assert plan.interval.launches % 25 == 0
    timer = CudaTimer(events)
    timer.time_interval(plan.interval, count=1)
    assert timer.time_interval(plan.interval, count=3).wall_s == pytest.approx([30e-6] * 3, rel=0.01)
    assert plan.working_set_bytes >= plan.cold_bytes == 250 * MIB
    assert events.flushed == []


@pytest.mark.parametrize("known_bytes", [64 * 1024, 0], ids=["tiny", "unknown"])
def test_f12_buffers_too_small_to_rotate_are_flushed_out_before_each_single_launch(known_bytes):
    events = ScriptedEvents()
    kernel = CachedKernel(events, buffer_bytes=64 * 1024, warm_s=3e-6, cold_s=9e-6)
    plan = plan_of(
        events, run=kernel.prepare(), again=kernel.prepare, buffer_bytes=known_bytes, cache=Cache.COLD, launch_s=3e-6
    )
    assert kernel.copies == 1
    assert plan.interval.launches == 1
    assert CudaTimer(events).time_interval(plan.interval, count=3).wall_s == pytest.approx([9e-6] * 3, rel=0.01)
    assert set(events.flushed) == {100 * MIB}
    assert plan.working_set_bytes >= plan.cold_bytes


def test_buffers_larger_than_the_cache_evict_themselves():
    events = ScriptedEvents()
    kernel = CachedKernel(events, buffer_bytes=300 * MIB, warm_s=50e-6, cold_s=100e-6)
    plan = plan_of(
        events, run=kernel.prepare(), again=kernel.prepare, buffer_bytes=300 * MIB, cache=Cache.COLD, launch_s=1e-4
    )
    assert kernel.copies == 1
    assert events.flushed == []
    assert CudaTimer(events).time_interval(plan.interval, count=2).wall_s == pytest.approx([1e-4] * 2, rel=0.01)


@pytest.mark.parametrize("launch_s", [3e-6, 30e-6, 600e-6])
def test_the_way_to_a_cold_cache_depends_on_sizes_and_never_on_times(launch_s):
    events = ScriptedEvents()
    kernel = CachedKernel(events, buffer_bytes=5 * MIB, warm_s=launch_s, cold_s=launch_s)
    plan_of(
        events, run=kernel.prepare(), again=kernel.prepare, buffer_bytes=5 * MIB, cache=Cache.COLD, launch_s=launch_s
    )
    assert kernel.copies == 50 <= COPIES_MAX
    assert events.flushed == []


def test_resolved_kernels_are_read_from_the_graph():
    assert symbols_of(dot_of(3, "ampere_bf16_s16816gemm_bf16_128x128")) == ("ampere_bf16_s16816gemm_bf16_128x128",)
    verbose = 'label="{KERNEL | {ID | 0 | _Z5axpyfPKfPf\\<\\<\\<1,32,0\\>\\>\\>} | {{node handle | func handle} | 1}}"'
    assert symbols_of(verbose + "\n" + dot_of(1, "b")) == ("_Z5axpyfPKfPf", "b")
    assert symbols_of("") == ()
