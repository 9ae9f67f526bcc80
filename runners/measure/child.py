"""The process that imports a commit's kernels and times them: a small server, one JSON object per line each way.

It is started afresh for every replicate, runs untrusted code in its own address space, and is believed only as far as
its parent's clock agrees. It holds no privilege: the parent pins and prioritises it.

    python -P -m runners.measure.child --requests-fd N --replies-fd M
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Protocol

from runners.measure.canary import Canary, CpuCanary
from runners.measure.houses import House, ModuleHouse, NotMeasurableError, Prepared, SuiteHouse
from runners.measure.protocol import WarmUp, warm_up
from runners.measure.timer import CpuTimer, LaunchTimer, inner_launches

LOG_TAIL_CHARS = 4000
Message = dict[str, Any]
_KIND_BY_OPERATION = {"hello": "discover", "discover": "discover", "build": "build"}


class Stopwatch(Protocol):
    """Warms prepared kernels up and times their blocks; one for each kind of device."""

    def warm(self, prepared: Prepared, *, spec: WarmUp, clock: str, launches: int | None) -> Message:
        """Launch until steady; `launches` is what a sample encloses elsewhere in this session."""

    def block(self, prepared: Prepared, *, count: int) -> Message:
        """One untimed launch, then `count` samples, as `wall_s` and `cpu_s`."""


class CpuStopwatch:
    """The CPU's: every launch between two readings of both clocks."""

    def __init__(self, timer: LaunchTimer) -> None:
        self._timer = timer

    def warm(self, prepared: Prepared, *, spec: WarmUp, clock: str, launches: int | None) -> Message:
        """See Stopwatch."""
        del launches

        def time_one() -> float:
            timed = self._timer.time_launches(prepared.run, count=1, inner=1)
            return timed.cpu_s[0] if clock == "cpu" else timed.wall_s[0]

        steady = warm_up(time_one, spec)
        prepared.launch_s = steady.launch_s
        return {"launch_s": steady.launch_s, "settled": steady.settled}

    def block(self, prepared: Prepared, *, count: int) -> Message:
        """See Stopwatch."""
        prepared.run()
        inner = inner_launches(prepared.launch_s)
        times = self._timer.time_launches(prepared.run, count=count, inner=inner)
        return {"wall_s": times.wall_s, "cpu_s": times.cpu_s, "inner": inner}


class Server:
    """Answers one request at a time; every failure of a kernel becomes an answer, not an exit."""

    def __init__(self, timer: LaunchTimer) -> None:
        self._timer = timer
        self._stopwatch: Stopwatch = CpuStopwatch(timer)
        self._canary: Canary | None = None
        self._house: House | None = None
        self._prepared: dict[str, Prepared] = {}
        self._operations: dict[str, Callable[[Message], Message]] = {
            "hello": self._hello,
            "discover": self._discover,
            "build": self._build,
            "prepare": self._prepare,
            "warm": self._warm,
            "canary": self._canary_frame,
            "copy_canary": self._copy_canary_frame,
            "launch_canary": self._launch_canary_frame,
            "block": self._block,
            "recheck": self._recheck,
            "static": self._static,
        }

    def answer(self, message: Message) -> Message:
        """Run one operation and say how it went."""
        operation = self._operations.get(str(message.get("op")))
        if operation is None:
            return {"ok": False, "kind": "bug", "error": f"there is no operation {message.get('op')!r}"}
        try:
            return {"ok": True, **operation(message)}
        except NotMeasurableError as error:
            return {"ok": False, "kind": error.kind_name, "error": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a commit's code raises is an answer about that commit
            kind = _KIND_BY_OPERATION.get(str(message.get("op")), "crashed")
            sentence = f"{type(error).__name__}: {error}"
            return {"ok": False, "kind": kind, "error": sentence, "log_tail": traceback.format_exc()[-LOG_TAIL_CHARS:]}

    def _hello(self, message: Message) -> Message:
        if "gpu_uuid" in message:  # CUDA and NVML number boards differently
            os.environ["CUDA_VISIBLE_DEVICES"] = message["gpu_uuid"]
        if "module" in message:
            self._house = ModuleHouse(Path(message["module"]), message["kernel"], float(message["slow_pct"]))
        else:
            self._house = SuiteHouse(Path(message["suite_dir"]), Path(message["build_dir"]))
        if message["device"] == "cuda":
            from runners.device.cuda.canary import GpuCanary
            from runners.device.cuda.cupy_events import CupyEvents
            from runners.device.cuda.stopwatch import CudaStopwatch
            from runners.device.cuda.timer import CudaTimer

            timer = CudaTimer(CupyEvents())
            self._stopwatch, self._canary = CudaStopwatch(timer), GpuCanary(timer)
        else:
            self._canary = CpuCanary(self._timer)
        return {"pid": os.getpid(), "python": sys.version.split()[0]}

    def _discover(self, message: Message) -> Message:
        return {"workloads": self._from_house().listing(message["tier"], message["device"])}

    def _build(self, message: Message) -> Message:
        return {"failed": self._from_house().build(tuple(message["workloads"]))}

    def _prepare(self, message: Message) -> Message:
        prepared = self._from_house().prepare(
            message["workload"], seed=message["seed"], proven_hash=message["proven_hash"]
        )
        self._prepared[message["workload"]] = prepared
        return {"output_hash": prepared.output_hash, "facts": {k: str(v) for k, v in prepared.facts.items()}}

    def _warm(self, message: Message) -> Message:
        return self._stopwatch.warm(
            self._prepared[message["workload"]],
            spec=WarmUp(**message["warm_up"]),
            clock=message["clock"],
            launches=message.get("launches"),
        )

    def _canary_frame(self, _: Message) -> Message:
        frame = self._need_canary().frame()
        return {"canary": [frame.wall_s, frame.cpu_s]}

    def _copy_canary_frame(self, _: Message) -> Message:
        frame = self._need_canary().copy_frame()
        return {"canary": [frame.wall_s, frame.cpu_s]}

    def _launch_canary_frame(self, _: Message) -> Message:
        frame = self._need_canary().launch_frame()
        return {"canary": [frame.wall_s, frame.cpu_s]}

    def _block(self, message: Message) -> Message:
        """One untimed launch, then the timed ones, then the canary frame that closes the block."""
        prepared = self._prepared[message["workload"]]
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        reply = self._stopwatch.block(prepared, count=message["launches"])
        reply["involuntary_switches"] = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switches
        if message["canary"]:
            begun_s = perf_counter()
            reply.update(self._canary_frame(message))
            if "between_s" in reply:
                reply["between_s"] += perf_counter() - begun_s
        return reply

    def _recheck(self, message: Message) -> Message:
        wrong = self._prepared[message["workload"]].recheck(message["seed"])
        if wrong is not None:
            raise NotMeasurableError("wrong_result", f"on fresh inputs during timing: {wrong}")
        return {}

    def _static(self, message: Message) -> Message:
        return {"static": self._from_house().static(message["workload"])}

    def _from_house(self) -> House:
        if self._house is None:
            raise NotMeasurableError("bug", "the first request must be hello")
        return self._house

    def _need_canary(self) -> Canary:
        if self._canary is None:
            raise NotMeasurableError("bug", "the first request must be hello")
        return self._canary


def serve(server: Server, requests: IO[str], replies: IO[str]) -> None:
    """Answer until the requests end; the collector runs between requests, never inside a timed block."""
    gc.disable()
    for line in requests:
        message = json.loads(line)
        reply = server.answer(message) | {"id": message.get("id")}  # what a kernel writes by itself lacks the number
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if reply.get("ok") and "wall_s" not in reply:
            gc.collect(0)


def main() -> None:
    """Read the two descriptors and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests-fd", type=int, required=True)
    parser.add_argument("--replies-fd", type=int, required=True)
    arguments = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with (
        os.fdopen(arguments.requests_fd, "r", encoding="utf-8") as requests,
        os.fdopen(arguments.replies_fd, "w", encoding="utf-8") as replies,
    ):
        serve(Server(CpuTimer()), requests, replies)


if __name__ == "__main__":
    main()
