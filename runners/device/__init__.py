"""Devices behind one Protocol: a CPU core or an NVIDIA GPU."""

from __future__ import annotations

from pathlib import Path

from runners.device.base import Device
from runners.errors import DeviceError


def open_device(kind: str, *, state_dir: Path, cpu: int | None = None) -> Device:
    """The device of this host of the given kind; `state_dir` keeps what must survive a restart."""
    if kind == "cpu":
        from runners.device.cpu.device import CpuDevice

        return CpuDevice(state_dir=state_dir, cpu=cpu)
    if kind == "cuda":
        from runners.device.cuda.device import open_cuda

        return open_cuda(state_dir=state_dir)
    raise DeviceError(f"there is no kind of device {kind!r}: use cpu or cuda")
