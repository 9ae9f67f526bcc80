"""Wires one agent for one device of this host from its registration and its folders."""

from __future__ import annotations

import threading
from pathlib import Path

from runners.agent import Agent
from runners.client import ServiceClient
from runners.config import WorkerConfig
from runners.device import open_device
from runners.identity import RunnerIdentity
from runners.job import Job, Progress, Workshop
from runners.sandbox import Limits
from runners.scratch import remove_stale
from runners.spool import Spool
from service.contract import RunOrder, RunReport

LOCK_PATIENCE_S = 5.0  # for a device that other runners of this host use too; a stop waits no longer


def build_agent(config: WorkerConfig, *, stopping: threading.Event | None = None) -> Agent:
    """An agent, ready to look for work; raises NotRegisteredError."""
    identity = RunnerIdentity.load(config.state_dir)
    device = open_device(identity.device, state_dir=config.state_dir, cpu=config.cpu)
    on_gpu = identity.device != "cpu"
    workshop = Workshop(
        device=device,
        cache_dir=config.cache_dir,
        limits=Limits(
            address_space_bytes=None if on_gpu else config.memory_bytes,
            data_bytes=config.memory_bytes,
        ),
        device_files=tuple(Path("/dev").glob("nvidia*")) if on_gpu else (),
    )

    def work(order: RunOrder, progress: Progress) -> RunReport:
        return Job(order, workshop, progress).carry_out()

    return Agent(
        service=ServiceClient(identity.url, identity.token),
        spool=Spool(config.state_dir / "spool"),
        work=work,
        lock_dir=config.lock_dir,
        device=identity.device if config.cpu is None else f"{identity.device}-{config.cpu}",
        stopping=stopping,
        lock_patience_s=LOCK_PATIENCE_S,
    )


def tidy(config: WorkerConfig) -> int:
    """Remove worktrees and scratch folders that a crash left; how many there were."""
    roots = (config.cache_dir / "scratch", *(config.cache_dir / "worktrees").glob("*"))
    return sum(remove_stale(root) for root in roots)
