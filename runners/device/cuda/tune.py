"""What `kernelwatch tune` does to a GPU: shows its clock, finds the one that holds, and forgets it again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from runners.device.cuda.clock import HOLD_S, KnownClocks
from runners.device.cuda.device import KNOWN_CLOCKS, CudaDevice, open_cuda
from runners.device.cuda.load import tensor_load
from runners.errors import DeviceError


def survey(state_dir: Path) -> tuple[str, str]:
    """The board (or that there is none) and a word on its clock."""
    try:
        board = open_cuda(state_dir=state_dir)
    except DeviceError as error:
        return "none", str(error)
    facts = board.environment().facts
    return facts["gpu_model"], f"power limit {facts['power_limit_w']} W; {clock_advice(state_dir, board.gpu_uuid)}"


def clock_advice(state_dir: Path, gpu_uuid: str) -> str:
    """Which clock sessions lock, or how to get one."""
    known = KnownClocks(state_dir / KNOWN_CLOCKS).of(gpu_uuid)
    if known is not None:
        return f"sessions lock its SM clock at {known} MHz"
    return "its clock is not locked: `kernelwatch tune --apply` as root finds the one that holds"


def apply(state_dir: Path) -> str | None:
    """Find and keep the clock that holds, in up to six minutes; a sentence, or None without a GPU."""
    try:
        device = open_cuda(state_dir=state_dir)
    except DeviceError:
        return None
    return find(device)


def find(device: CudaDevice) -> str:
    """What was found, as a sentence."""
    try:
        found = device.find_clock(partial(tensor_load, device.gpu_uuid))
    except DeviceError as error:
        return f"gpu clock: not looked for: {error}"
    if found is None:
        return "gpu clock: stays unlocked: this user may not lock it, or the board holds none"
    return f"gpu clock: {found} MHz, which it held for {HOLD_S:.0f} s at full load; sessions lock it from now on"


def restore(state_dir: Path) -> str | None:
    """Forget the clock; opening the board has undone a lock that a crash left. None when there was nothing."""
    try:
        kept = open_cuda(state_dir=state_dir).forget_clock()
    except DeviceError:
        return None
    return None if kept is None else f"gpu clock: {kept} MHz is no longer locked"
