"""Work for the tensor cores, in a process of its own, while its parent watches the board.

    python -P -m runners.device.cuda.load --gpu-uuid GPU-… --seconds 60

The parent process never opens CUDA itself: it would then be a process on the board, and hold its memory.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from runners.errors import DeviceError

START_LIMIT_S = 60.0  # for the context, the random matrices and the first product
LOOK_S = 0.05


def tensor_load(gpu_uuid: str, seconds: float) -> Iterator[None]:
    """Keep the board busy for `seconds`, yielding 20 times a second once it is; raises DeviceError if it cannot."""
    command = [sys.executable, "-P", "-m", "runners.device.cuda.load"]
    command += ["--gpu-uuid", gpu_uuid, "--seconds", f"{seconds:g}"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        try:
            ready = process.stdout is not None and bool(select.select([process.stdout], [], [], START_LIMIT_S)[0])
            if not ready or process.stdout is None or not process.stdout.read(1):
                process.kill()
                process.wait()
                log.seek(0)
                said = log.read().decode(errors="replace").strip()[-300:]
                raise DeviceError(f"the GPU cannot be put to work: {said or 'it did not start in time'}")
            until = time.monotonic() + seconds
            while process.poll() is None and time.monotonic() < until:
                yield
                time.sleep(LOOK_S)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def main() -> None:
    """Multiply until the time is over; one byte on stdout says that the board is at work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu-uuid", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = arguments.gpu_uuid
    from runners.device.cuda.canary import GpuCanary
    from runners.device.cuda.cupy_events import CupyEvents
    from runners.device.cuda.timer import CudaTimer

    canary = GpuCanary(CudaTimer(CupyEvents()))
    canary.multiply_for(1)
    sys.stdout.write(".")
    sys.stdout.flush()
    until = time.monotonic() + arguments.seconds + 1.0  # the parent ends it; alone, it ends itself
    while time.monotonic() < until:
        canary.multiply_for(10)


if __name__ == "__main__":
    main()
