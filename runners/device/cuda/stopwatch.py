"""The child's side of a measurement on a GPU: warm a kernel up, plan how it is timed, time its blocks."""

from __future__ import annotations

import statistics
from typing import Any

from runners.device.cuda.plan import Plan, Wanted, make_plan
from runners.device.cuda.timer import CudaTimer, launches_per_sample
from runners.measure.houses import Prepared
from runners.measure.protocol import WarmUp, warm_up

SCALE_S = 0.1  # of plain launches, until the clocks have risen and the length of a launch is known


class CudaStopwatch:
    """Warms up and times prepared kernels by events; one plan per kernel and process."""

    def __init__(self, timer: CudaTimer) -> None:
        self._timer = timer

    def warm(self, prepared: Prepared, *, spec: WarmUp, clock: str, launches: int | None) -> dict[str, Any]:
        """Launch until steady; the answer says how the kernel is timed, and with how many launches a sample."""
        del clock
        plan: Plan = prepared.plan or self._plan(prepared, launches)
        prepared.plan, interval = plan, plan.interval

        def time_one() -> float:
            return self._timer.time_interval(interval, count=1).wall_s[0] * interval.launches

        steady = warm_up(time_one, spec)
        launch_s = steady.launch_s / interval.launches
        prepared.launch_s = launch_s
        return {
            "launch_s": launch_s,
            "sample_s": steady.launch_s + self._timer.delay_s,
            "settled": steady.settled,
            "launches": plan.asked,
            "method": plan.method.value,
            "reason": plan.reason,
            "symbols": "+".join(plan.symbols),
        }

    def block(self, prepared: Prepared, *, count: int) -> dict[str, Any]:
        """One untimed interval, then the timed ones; `between_s` is what the host saw pass beside them."""
        plan, timer = prepared.plan, self._timer
        bound = timer.host_bound
        begun_s = timer.events.host_s()
        timer.time_interval(plan.interval, count=1)
        times = timer.time_interval(plan.interval, count=count)
        passed_s = timer.events.host_s() - begun_s
        return {
            "wall_s": times.wall_s,
            "cpu_s": times.cpu_s,
            "inner": plan.interval.launches,
            "between_s": passed_s - sum(times.wall_s) * plan.interval.launches,
            "host_bound": timer.host_bound - bound,
            "working_set_bytes": plan.working_set_bytes,
            "cold_bytes": plan.cold_bytes,
        }

    def _plan(self, prepared: Prepared, launches: int | None) -> Plan:
        wanted = Wanted(
            run=prepared.run,
            again=prepared.again,
            buffer_bytes=prepared.buffer_bytes,
            cache=prepared.cache,
            launches=launches,
        )
        return make_plan(self._timer, wanted, launch_s=self._scale(prepared))

    def _scale(self, prepared: Prepared) -> float:
        """About how long one launch takes when the clocks have risen; the very first call is never counted (F1)."""
        self._timer.time_launches(prepared.run, count=1, inner=1)
        inner = launches_per_sample(self._timer.time_launches(prepared.run, count=1, inner=1).wall_s[0])
        spent_s, times = 0.0, list[float]()
        while not times or spent_s < SCALE_S:
            seconds = self._timer.time_launches(prepared.run, count=1, inner=inner).wall_s[0]
            times.append(seconds)
            spent_s += max(seconds * inner, 1e-6)
        return statistics.median(times[-9:])
