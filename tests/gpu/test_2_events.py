"""A real GPU from inside a process: events, delay, flush, graphs, and every kernel of the suite on small shapes."""

import itertools
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from runners.api import Cache
from runners.device.cuda.plan import Method, Wanted, make_plan
from runners.device.cuda.timer import FLUSH_FACTOR, CaptureError, CudaTimer, Interval
from runners.kernels_run import RowStatus, check_all
from runners.measure.discover import BoundWorkload, load_suite

# CuPy may warn of what it does not find on this machine; that is no failure of ours.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
SUITE = load_suite(Path(__file__).parents[2] / "kernels_under_test")


def smallest(implementation):
    """The cheapest shape of its problem that an implementation takes; those for the CPU serve as well."""
    problem = implementation.problem
    fitting = [w for w in problem.workloads if implementation.supports is None or implementation.supports(w.axes)]
    return min(fitting, key=lambda w: problem.flops(w.axes) + problem.bytes(w.axes, "f32") / 8)


SMALL = {i.name: BoundWorkload(i, smallest(i)) for i in SUITE.implementations if i.device == "cuda"}
CHASE = r"""
extern "C" __global__ void chase(const unsigned* next, const unsigned* starts, unsigned* out, int hops) {
    unsigned line = starts[threadIdx.x];
    for (int i = 0; i < hops; ++i) line = __ldcg(next + line * 32u);
    out[threadIdx.x] = line;
}
"""
LINE_BYTES, CHASERS = 128, 64


def spinning(milliseconds):
    """A launch that takes about so long, whatever the clock."""
    import cupy

    from runners.device.cuda.cupy_events import _DELAY_SOURCE

    spin = cupy.RawKernel(_DELAY_SOURCE, "kernelwatch_delay")
    return lambda: spin((1,), (1,), (cupy.int64(milliseconds * 1e6),))


def chasing(size_bytes):
    """Walks through every line of a buffer, each load waiting for the one before: slow exactly when they miss the L2."""
    import cupy

    hops = size_bytes // LINE_BYTES // CHASERS
    lines = np.random.default_rng(5).permutation(hops * CHASERS).reshape(CHASERS, hops).astype(np.uint32)
    table = np.zeros((hops * CHASERS, LINE_BYTES // 4), np.uint32)
    table[lines, 0] = np.roll(lines, -1, axis=1)
    held = cupy.asarray(table), cupy.asarray(lines[:, 0].copy()), cupy.empty(CHASERS, cupy.uint32)
    chase = cupy.RawKernel(CHASE, "chase")
    return lambda: chase((1,), (CHASERS,), (*held, cupy.int32(hops)))


def median_s(timer, interval, count=20):
    timer.time_interval(interval, count=3)
    return statistics.median(timer.time_interval(interval, count=count).wall_s)


def test_events_are_monotone_and_agree_with_the_hosts_clock(events):
    timer, run = CudaTimer(events), spinning(5.0)
    run()
    marks = [events.record()]
    for _ in range(4):
        run()
        marks.append(events.record())
    steps = [events.elapsed_s(a, b) for a, b in itertools.pairwise(marks)]
    assert min(steps) > 4.9e-3, steps
    begun_s = time.perf_counter()
    seconds = timer.time_launches(run, count=1, inner=4).wall_s[0]
    assert 4.9e-3 < seconds < 6e-3
    assert 4 * seconds < time.perf_counter() - begun_s


def test_behind_the_delay_the_host_is_ahead(events):
    timer = CudaTimer(events)
    median_s(timer, Interval(spinning(0.02), calls=8, launches=8))
    timer.host_bound = 0
    timer.time_launches(spinning(0.02), count=20, inner=8)
    assert timer.host_bound <= 1


def test_a_flush_leaves_a_walk_through_cached_lines_cold(events):
    timer, run = CudaTimer(events), chasing(events.l2_bytes // 12)
    warm = median_s(timer, Interval(run, calls=1, launches=1))
    cold = median_s(timer, Interval(run, calls=1, launches=1, flush_bytes=FLUSH_FACTOR * events.l2_bytes))
    assert cold > 1.2 * warm, f"warm {warm * 1e6:.1f} us, after a flush {cold * 1e6:.1f} us"


def test_rotation_leaves_a_walk_through_cached_lines_cold(events):
    size = events.l2_bytes // 12
    timer = CudaTimer(events)
    wanted = {"run": chasing(size), "again": lambda: chasing(size), "buffer_bytes": size}
    warm = make_plan(timer, Wanted(**wanted, cache=Cache.WARM), launch_s=100e-6)
    cold = make_plan(timer, Wanted(**wanted, cache=Cache.COLD), launch_s=100e-6)
    assert cold.working_set_bytes >= cold.cold_bytes > 0
    assert cold.interval.flush_bytes == 0
    seconds = [median_s(timer, plan.interval, count=5) for plan in (warm, cold)]
    assert seconds[1] > 1.2 * seconds[0], f"warm {seconds[0] * 1e6:.1f} us, rotated {seconds[1] * 1e6:.1f} us"


def test_graph_replay_takes_as_long_as_plain_launches(events):
    timer, run = CudaTimer(events), spinning(0.1)
    plan = make_plan(timer, Wanted(run=run, again=None, buffer_bytes=0, cache=Cache.WARM), launch_s=100e-6)
    assert plan.method is Method.GRAPH, plan.reason
    assert plan.symbols == ("kernelwatch_delay",), "the driver's description of a graph reads otherwise than expected"
    plain = median_s(timer, Interval(run, calls=plan.asked, launches=plan.asked))
    assert median_s(timer, plan.interval) == pytest.approx(plain, rel=0.05)


def test_what_no_graph_can_hold_is_refused_and_the_device_goes_on(events):
    import cupy

    def allocates():
        cupy.empty(1 << 20, cupy.uint8).fill(1)

    def waits():
        cupy.cuda.get_current_stream().synchronize()

    allocates()
    with pytest.raises(CaptureError, match="allocates memory"):
        events.capture([allocates])
    with pytest.raises(CaptureError):
        events.capture([waits])
    assert CudaTimer(events).time_launches(spinning(0.1), count=2, inner=2).wall_s[0] > 90e-6


@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_of_the_suite_compiles_and_is_right_on_a_small_shape(events, name, tmp_path):
    (row,) = check_all(SUITE, [SMALL[name]], build_dir=tmp_path, seeds=(1, 2))
    if row.status is RowStatus.SKIPPED:
        pytest.skip(row.reason)
    assert row.status is RowStatus.OK, f"{row.key}: {row.reason}"
