"""What a device offers a measurement: take and return it, hold a child on it, watch conditions, say what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from runners.measure.protocol import Flag, WarmUp
from service.contract import DeviceHealth, EnvironmentReport


@dataclass(frozen=True, slots=True)
class Conditions:
    """A look at the device and the machine at one moment; two of them frame a block."""

    taken_s: float
    readings: dict[str, float]


class Device(Protocol):
    """One device of a host, behind which `cpu` and `cuda` look alike."""

    @property
    def kind(self) -> str:
        """`cpu` or `cuda`: the kind of workload it runs."""

    @property
    def warm_up(self) -> WarmUp:
        """When a kernel counts as warm here."""

    @property
    def prepares_beside(self) -> bool:
        """Whether the next children may be brought up while the present ones are timed."""

    @property
    def canary_reference_s(self) -> float:
        """Canary seconds of this device, measured once and kept: what figures are rescaled by."""

    def hello(self) -> dict[str, str]:
        """What a child must be told of the device before anything else."""

    def environment(self, canary_reference_s: float | None = None) -> EnvironmentReport:
        """All facts, the comparable key and the fingerprint; a reference given by the pool replaces the own one."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the device for one session; on the way out everything that was set is put back.

        Raises DeviceError when it is not there or a foreign process runs on it.
        """

    def hold(self, pid: int, *, threads: int) -> tuple[Flag, ...]:
        """Pin and prioritise a child; the flags say what the machine did not allow."""

    def look(self, pid: int) -> Conditions:
        """Read conditions before or after a block."""

    def clock_stood(self, before: Conditions, after: Conditions) -> bool:
        """Whether the device's clock stood still at the end of a warm-up; True where none can be read."""

    def judge(self, before: Conditions, after: Conditions, reply: dict[str, Any]) -> tuple[Flag, ...]:
        """The flags of a block from what changed while it ran and what the child said of it."""

    def look_around(self) -> Conditions:
        """Read what the whole machine is doing, at the start and at the end of a session."""

    def judge_session(self, before: Conditions, after: Conditions) -> tuple[Flag, ...]:
        """The flags that every figure of a session earns from what others did meanwhile."""

    def health(self) -> DeviceHealth | None:
        """What the device says of its own health since it was asked last; None where it says nothing."""
