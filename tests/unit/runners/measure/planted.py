"""Faults planted in scripted machines, boards and kernels, each with what the engine made of it."""

from __future__ import annotations

import itertools
import math
import random
import threading
from dataclasses import replace
from pathlib import Path

from runners.api import Cache
from runners.device.cuda.device import CudaDevice
from runners.device.cuda.nvml import TimedNvml
from runners.device.cuda.plan import Wanted, make_plan
from runners.device.cuda.timer import CudaTimer
from runners.errors import DeviceError
from runners.measure.child import CpuStopwatch, Server
from runners.measure.comparison import compare
from runners.measure.houses import Prepared
from runners.measure.session import measure_commits
from runners.measure.team import Subject
from runners.measure.timer import CpuTimer, Launches
from service.contract import ProtocolParams
from tests.unit.runners.device.cuda.scripted import IDLE, CachedKernel, ScriptedEvents, ScriptedNvml
from tests.unit.runners.measure.scripted import CANARY_S, Machine, QuietDevice

A = Subject("a" * 40, Path("/suite-a"), Path("/build"))
B = Subject("b" * 40, Path("/suite-b"), Path("/build"))
TRUE_S = 5e-3
MIB = 1 << 20


def session(machine, device=None, **params):
    """One commit measured on a scripted machine."""
    params = {"processes": 8, "blocks": 3, "target_half_width": -1.0, "budget_s": 1e9, **params}
    return measure_commits(
        [A],
        spawn=machine.spawn,
        device=device or QuietDevice(),
        params=ProtocolParams(**params),
        rng=random.Random(0),
        clock=machine.clock,
    )


def point(machine, **params):
    """The history point of one commit on a scripted machine."""
    return session(machine, **params).measurements[0]


def comparison(machine, *, processes=20):
    """Two commits of different code compared on a scripted machine."""

    def different(child, message, reply):
        if message["op"] == "static":
            return {"ok": True, "static": {"code_hash": child.sha, "recipe_hash": "r"}}
        return machine_answer(child, message, reply)

    machine_answer, machine.answer = machine.answer, different
    result = compare(
        A,
        B,
        spawn=machine.spawn,
        device=QuietDevice(),
        params=ProtocolParams(processes=processes, blocks=3, block_s=0.02, budget_s=1e9),
        floor=0.01,
        audit_share=0.0,
        rng=random.Random(3),
        clock=machine.clock,
    )
    return result.comparisons[0]


def ramping() -> Machine:
    """F2: each process begins at half speed and needs 150 ms to reach the full one."""
    machine, started = Machine(), {}

    def ramp(child, _launch):
        begun_s = started.setdefault(child.pid, machine.now_s)
        return TRUE_S * (1 + max(0.0, 1 - (machine.now_s - begun_s) / 0.150))

    machine.kernel = ramp
    return machine


def drifting(share: float) -> Machine:
    """F3: the kernel slows down for ever, by this share with each launch of anybody."""
    launches = itertools.count()
    return Machine(kernel=lambda _child, _launch: TRUE_S * math.exp(share * next(launches)))


def slowing_with_its_canary() -> Machine:
    """F3: the whole machine slows down by 30 %, canary and kernel alike."""
    machine = Machine()
    slow = lambda: 1 + 0.3 * min(1.0, machine.now_s / 0.6)  # noqa: E731
    machine.kernel = lambda _child, _launch: TRUE_S * slow()
    machine.canary = lambda _child: CANARY_S * slow()
    return machine


def moody(seed: int = 5) -> Machine:
    """F4: every process is in one of two moods, 8 % apart."""
    rng, modes = random.Random(seed), {}
    return Machine(kernel=lambda child, _launch: TRUE_S * modes.setdefault(child.pid, rng.choice([1.0, 1.08])))


def second_is_slower() -> Machine:
    """F5: of two blocks in a row, the second pays 6 %."""
    machine, blocks = Machine(), itertools.count()
    at = {"order": 0, "asked": 0}

    def kernel(_child, _launch):
        if len(machine.asked) != at["asked"] and machine.asked[-1][2]["op"] == "block":
            at.update(order=next(blocks), asked=len(machine.asked))
        return TRUE_S * (1.06 if at["order"] % 2 else 1.0)

    machine.kernel = kernel
    return machine


def bursting() -> Machine:
    """F6: somebody else takes 60 % more time from it, now and then, for 30 ms."""
    machine, rng, burst = Machine(), random.Random(9), {"until_s": 0.0}

    def kernel(_child, _launch):
        if machine.now_s > burst["until_s"] and rng.random() < 0.02:
            burst["until_s"] = machine.now_s + 0.03
        return TRUE_S * (1.6 if machine.now_s < burst["until_s"] else 1.0)

    machine.kernel = kernel
    return machine


def lying(lie: dict) -> Machine:
    """F8: every other process answers blocks with these times."""

    def answer(child, message, reply):
        return {**reply, **lie} if message["op"] == "block" and child.process % 2 else reply

    return Machine(kernel=lambda _child, _launch: 50e-3, answer=answer)


def hiding(seconds: float = 0.5) -> Machine:
    """F10: the work is done after the child has stopped its clock."""

    def answer(child, message, reply):
        if message["op"] == "block":
            child.machine.now_s += seconds
        return reply

    return Machine(answer=answer)


def boasting() -> Machine:
    """F10: a time in which no machine could do so much work."""

    def answer(_child, message, reply):
        if message["op"] == "discover":
            return {"ok": True, "workloads": [{**w, "flops": 1e15} for w in reply["workloads"]]}
        return reply

    return Machine(answer=answer)


def data_dependent() -> Machine:
    """F11: the time depends on the inputs, by up to 20 %."""
    seeds = {}

    def remember(child, message, reply):
        if message["op"] == "prepare":
            seeds[child.pid] = message["seed"]
        return reply

    machine = Machine(answer=remember)
    machine.kernel = lambda child, _launch: TRUE_S * (1 + 0.2 * random.Random(seeds[child.pid]).random())
    return machine


class Moved(QuietDevice):
    """F9: a device whose environment is another one after the measurement."""

    def environment(self, canary_reference_s=None):
        found = super().environment(canary_reference_s)
        self.asked = getattr(self, "asked", 0) + 1
        return type(found)(found.device, f"key {self.asked}", found.fingerprint, found.facts)


class VirtualTimer(CpuTimer):
    """A timer over a clock that only the kernel moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def time_launches(self, run, *, count, inner):
        times = []
        for _ in range(count):
            begun_s = self.now_s
            for _ in range(inner):
                run()
            times.append((self.now_s - begun_s) / inner)
        return Launches(tuple(times), tuple(times))


def longest_sample_s() -> float:
    """F1: after the canary the first call of a block takes 0.5 s; the longest sample of the block."""
    timer = VirtualTimer()
    calls = itertools.count()

    def run():
        timer.now_s += 0.5 if next(calls) == 0 else TRUE_S

    prepared = Prepared(run=run, recheck=lambda _seed: None, launch_s=TRUE_S)
    return max(CpuStopwatch(timer).block(prepared, count=3)["wall_s"])


def board_flags(during, state_dir: Path, **facts):
    """F7: what a block earns while the board shows `during`."""
    nvml = ScriptedNvml()
    device = CudaDevice(nvml=nvml, state_dir=state_dir)
    with device.taken():
        before = device.look(1)
        quiet, nvml.now = nvml.now, replace(IDLE, **during)
        after = device.look(1)
        nvml.now = quiet
        return device.judge(before, after, facts)


class WouldHangForeverError(Exception):
    """The call was made in the thread that measures."""


def hanging_nvml() -> str:
    """F7: NVML never answers; what the caller sees of it."""
    release, here = threading.Event(), threading.current_thread()

    class Hanging(ScriptedNvml):
        def read(self):
            if threading.current_thread() is here:
                raise WouldHangForeverError
            release.wait(60)
            return IDLE

    try:
        TimedNvml(Hanging(), timeout_s=0.05).read()
    except DeviceError:
        return "an error in time"
    except WouldHangForeverError:
        return "hangs"
    finally:
        release.set()
    return "answered"


def time_though_cold_s() -> float:
    """F12: a kernel of 10 MiB asked for cold, in a cache of 50 MiB: 30 us cold, 10 us warm; what is measured."""
    events = ScriptedEvents(launch_cost_s=1e-6)
    kernel = CachedKernel(events, buffer_bytes=10 * MIB, warm_s=10e-6, cold_s=30e-6)
    wanted = Wanted(run=kernel.prepare(), again=kernel.prepare, buffer_bytes=10 * MIB, cache=Cache.COLD)
    timer = CudaTimer(events)
    plan = make_plan(timer, wanted, launch_s=10e-6)
    timer.time_interval(plan.interval, count=1)
    return timer.time_interval(plan.interval, count=1).wall_s[0]


PROBLEM = """
import numpy as np
from runners.api import Launch, Problem, Tolerance, Workload, implementation

P = Problem(
    name="p", family="f", axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"])},
    reference=lambda inputs, axes: inputs["x"] * 2,
    flops=lambda axes: 1.0, bytes=lambda axes, dtype: 1.0,
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-6, atol=1e-6, rel_l2=1e-6),
    workloads=(Workload({"n": 64}),),
)


@implementation("k", problem=P, device="cpu", dtype="f64")
def prepare(ctx, inputs, axes):
    x, out, state = inputs["x"].copy(), np.zeros(axes["n"]), {}

    def compute():
        np.multiply(x, 2, out=out)

"""
KERNELS = {
    "honest": """
    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=compute, output=lambda: out, load=load)
""",
    "caches its answer": """
    cached = x * 2

    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=lambda: None, output=lambda: cached, load=load)
""",
    "works while it loads": """
    def load(fresh):
        x[:] = fresh["x"]
        compute()

    compute()
    return Launch(run=lambda: None, output=lambda: out, load=load)
""",
    "works when it is read": """
    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=lambda: None, output=lambda: x * 2, load=load)
""",
    "returns early": """
    def load(fresh):
        x[:] = fresh["x"]
        state.clear()

    def run():
        if not state:
            state["done"] = True
            compute()

    return Launch(run=run, output=lambda: out, load=load)
""",
    "changes little": """
    def load(fresh):
        x[:] = fresh["x"]
        out[:] = 2 * x
        out[0] = 0

    def run():
        out[0] = 2 * x[0]

    compute()
    return Launch(run=run, output=lambda: out, load=load)
""",
    "shows nothing before": """
    def load(fresh):
        x[:] = fresh["x"]
        state.clear()

    def run():
        state["out"] = x * 2

    return Launch(run=run, output=lambda: state["out"], load=load)
""",
    "accumulates": """
    def load(fresh):
        x[:] = fresh["x"]
        out[:] = 0

    def run():
        out[:] += 2 * x

    return Launch(run=run, output=lambda: out, load=load)
""",
}


def relative_half_width(machine: Machine, **params) -> float:
    """The half-width of a history point's interval over its value."""
    found = point(machine, **params)
    return found.half_width_s / found.value_s


def outcome_of(kernel: str, folder: Path) -> str:
    """F10: what the check on fresh inputs says of a kernel that was proven right once: "right" or why not."""
    (folder / "suite").mkdir(exist_ok=True)
    (folder / "suite" / "k.py").write_text(PROBLEM + KERNELS[kernel])
    server = Server(CpuTimer())
    hello = {"op": "hello", "device": "cpu", "suite_dir": str(folder / "suite"), "build_dir": str(folder / "build")}
    assert server.answer(hello)["ok"]
    assert server.answer({"op": "prepare", "workload": "k[n=64]", "seed": 0, "proven_hash": None})["ok"]
    reply = server.answer({"op": "recheck", "workload": "k[n=64]", "seed": 5})
    return "right" if reply["ok"] else reply["error"]
