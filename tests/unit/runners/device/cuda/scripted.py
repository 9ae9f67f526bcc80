"""A scripted board: NVML answers as the script says, and events run on a device clock that only the script moves."""

from dataclasses import dataclass, field, replace

from runners.device.cuda.nvml import ClockEvent, GpuReading
from runners.device.cuda.timer import Captured, CaptureError

IDLE = GpuReading(1500, 2600, 300.0, 50, ClockEvent.NONE, 0, ())
FACTS = {"gpu_model": "NVIDIA H200", "gpu_uuid": "GPU-1", "driver": "580.1", "power_limit_w": "700.0"}


@dataclass
class ScriptedNvml:
    now: GpuReading = IDLE
    found: dict = field(default_factory=lambda: dict(FACTS))
    clocks: tuple = (1980, 1830, 1500)
    may_lock: bool = True
    locked: list = field(default_factory=list)
    cap_above_mhz: int = 10_000

    def facts(self):
        return dict(self.found)

    def read(self):
        if self.locked and self.locked[-1] is not None:
            over = self.locked[-1] > self.cap_above_mhz
            clock = min(self.locked[-1], self.cap_above_mhz)
            return replace(self.now, sm_clock_mhz=clock, events=ClockEvent.SW_POWER_CAP if over else self.now.events)
        return self.now

    def supported_sm_clocks_mhz(self):
        return self.clocks

    def lock_sm_clock(self, mhz):
        if not self.may_lock:
            raise PermissionError
        self.locked.append(mhz)

    def unlock_sm_clock(self):
        self.locked.append(None)


class ScriptedEvents:
    """A device and a host clock; the host queues, the device runs behind. `touched` is what has passed the cache."""

    def __init__(self, kernel_s=1e-3, launch_cost_s=5e-6, *, l2_bytes=50 << 20, refuses="", elsewhere=False):
        self.kernel_s, self.launch_cost_s = kernel_s, launch_cost_s
        self.l2_bytes = l2_bytes
        self.refuses, self.elsewhere = refuses, elsewhere
        self.host, self.device = 0.0, 0.0
        self.touched = 0
        self.flushed = []
        self.launches = 0
        self._recording = None

    def _queue(self, seconds):
        self.host += 1e-6
        self.device = max(self.device, self.host) + seconds

    def delay(self, seconds):
        self._queue(seconds)

    def launch(self, seconds=None):
        """One launch of the kernel, or of another that takes `seconds()`."""
        work = seconds or (lambda: self.kernel_s)
        if self._recording is not None and not self.elsewhere:
            self._recording.append(work)
            return
        self.launches += 1
        self.host += self.launch_cost_s
        self._queue(work())

    def wait(self):
        """What a kernel must not do: let the host wait for the device."""
        self.host = max(self.host, self.device)

    def capture(self, runs):
        if self.refuses:
            raise CaptureError(self.refuses)
        self._recording = recorded = []
        for run in runs:
            run()
        self._recording = None

        def replay():
            self.host += self.launch_cost_s
            self.launches += len(recorded)
            self.device = max(self.device, self.host) + sum(work() for work in recorded)

        return Captured(replay, dot_of(len(recorded)))

    def record(self):
        self._queue(0.0)
        return self.device

    def elapsed_s(self, start, stop):
        self.host = max(self.host, stop)
        return stop - start

    def passed(self, event):
        return event <= self.host

    def flush_l2(self, size_bytes):
        self.flushed.append(size_bytes)
        self.touched += size_bytes

    def host_s(self):
        return self.host


def dot_of(nodes, symbol="gemm_mma_bf16"):
    """What the driver prints of a graph with so many kernels in a row."""
    lines = [
        f'"graph_1_node_{at}"[style="bold" shape="octagon" label="{at}\n{symbol}\\<\\<\\<128,256,0\\>\\>\\>"];'
        for at in range(nodes)
    ]
    lines += [f'"graph_1_node_{at}" -> "graph_1_node_{at + 1}" [headlabel=0];' for at in range(nodes - 1)]
    return "\n".join(
        ["digraph dot {", "subgraph cluster_1 {", 'label="graph_1" graph[style="dashed"];', *lines, "}", "}"]
    )


class CachedKernel:
    """A kernel whose launch takes `cold_s` when its buffers have left the cache and `warm_s` when they have not."""

    def __init__(self, events, *, buffer_bytes, warm_s, cold_s):
        self.events, self.buffer_bytes, self.warm_s, self.cold_s = events, buffer_bytes, warm_s, cold_s
        self.copies = 0

    def prepare(self):
        self.copies += 1
        last = None

        def seconds():
            nonlocal last
            gone = last is None or self.events.touched - last >= self.events.l2_bytes
            last = self.events.touched
            self.events.touched += self.buffer_bytes
            return self.cold_s if gone else self.warm_s

        return lambda: self.events.launch(seconds)
