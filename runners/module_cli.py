"""`kernelwatch measure-module` and `compare-module`: the engine on any callable.

The file defines `make(kernel, slow_pct)`, which returns the callable.
The budget is in seconds of kernel time, as other tools count it; everything else (starting processes, canaries,
untimed first calls) comes on top.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runners.local_homes import state_dir

if TYPE_CHECKING:
    from runners.device.base import Device

MEASURE_PROCESSES = 10
COMPARE_PAIRS = 10
BLOCK_S = 0.018
FLOOR = 0.01


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--module", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True),
        click.option("--kernel", required=True, help="Passed to make()."),
        click.option("--budget", type=float, default=2.0, show_default=True, help="Seconds of kernel time."),
        click.option("--cpu", type=int, default=None, help="Core to measure on (default: the last allowed one)."),
        click.option("--priority", type=click.Choice(["auto", "plain"]), default="auto", show_default=True),
        click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), required=True),
    ):
        command = option(command)
    return command


def _device(cpu: int | None, priority: str) -> Device:
    from runners.device.cpu.device import CpuDevice, Priority

    return CpuDevice(state_dir=state_dir(), cpu=cpu, priority=Priority(priority))


@click.command("measure-module")
@_options
@click.option("--slow", type=float, default=0.0, help="Passed to make(): slower by so many per cent.")
def measure_module(
    *, module: Path, kernel: str, slow: float, budget: float, cpu: int | None, priority: str, out: Path
) -> None:
    """Write the history figure of one callable, in nanoseconds, with its half-width and flags."""
    from runners.measure.local_child import LocalChild
    from runners.measure.session import measure_commits
    from runners.measure.team import ModuleSubject
    from service.contract import ProtocolParams

    blocks = max(2, round(budget / MEASURE_PROCESSES / BLOCK_S))
    params = ProtocolParams(
        processes=MEASURE_PROCESSES, blocks=blocks, block_s=BLOCK_S, target_half_width=0.004, budget_s=60.0
    )
    found = measure_commits(
        [ModuleSubject(kernel, module.resolve(), kernel, slow)],
        spawn=lambda _subject, _process: LocalChild(),
        device=_device(cpu, priority),
        params=params,
        rng=random.Random(),
        clock=time.monotonic,
    )
    if found.commit_failures:
        raise click.ClickException(found.commit_failures[0].failure.reason)
    (report,) = found.measurements
    if report.value_s is None:
        raise click.ClickException(f"{report.status.value}: {report.error}")
    half_width_ns = None if report.half_width_s is None else report.half_width_s * 1e9
    figures = {"figures": {"figure": report.value_s * 1e9}, "half_width_ns": half_width_ns, "clock": report.clock}
    out.write_text(json.dumps({**figures, "processes": found.processes, "flags": list(report.flags)}))


@click.command("compare-module")
@_options
@click.option("--slow-a", type=float, default=0.0, help="Passed to make() for A.")
@click.option("--slow-b", type=float, default=0.0, help="Passed to make() for B.")
@click.option("--floor", type=float, default=FLOOR, show_default=True, help="Smallest ratio - 1 that matters.")
def compare_module(
    *,
    module: Path,
    kernel: str,
    slow_a: float,
    slow_b: float,
    budget: float,
    cpu: int | None,
    priority: str,
    floor: float,
    out: Path,
) -> None:
    """Write the ratio B/A of two variants of a callable, its interval, the verdict and flags."""
    from runners.measure.comparison import compare
    from runners.measure.local_child import LocalChild
    from runners.measure.team import ModuleSubject
    from service.contract import ProtocolParams

    pairs = pairs_for(budget)
    blocks = max(1, round(budget / pairs / (4 * BLOCK_S)))
    params = ProtocolParams(processes=pairs, blocks=blocks, block_s=BLOCK_S, budget_s=600.0)
    path = module.resolve()
    found = compare(
        ModuleSubject("A", path, kernel, slow_a),
        ModuleSubject("B", path, kernel, slow_b),
        spawn=lambda _subject, _process: LocalChild(),
        device=_device(cpu, priority),
        params=params,
        floor=floor,
        rng=random.Random(),
        clock=time.monotonic,
    )
    if found.failures:
        raise click.ClickException(found.failures[0].failure.reason)
    (comparison,) = found.comparisons
    look = comparison.look
    if look is None:
        raise click.ClickException(f"{comparison.verdict.value}: {comparison.reason}")
    answer = {"ratio": look.ratio, "ci": [look.low, look.high], "verdict": comparison.verdict.value}
    out.write_text(
        json.dumps({**answer, "flags": list(comparison.flags), "pairs": look.pairs, "clock": look.clock.value})
    )


def pairs_for(budget_s: float) -> int:
    """10 pairs for the usual 4 s of kernel time; a longer budget goes on to the next planned looks."""
    if budget_s >= 16.0:
        return 40
    return 20 if budget_s >= 8.0 else COMPARE_PAIRS
