"""`kernelwatch kernels`: list, check and run the kernels of a suite on this machine.

NumPy and the suite are imported inside the commands, after the environment is set: OpenBLAS reads it when it loads.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from runners.kernels_run import Row
    from runners.measure.discover import BoundWorkload, Suite

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # a forced core type would slow the control and flatter us
CHECK_SEEDS = (1, 2)


@click.group()
def kernels() -> None:
    """List, check and run the kernels of a suite."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every command takes."""
    for option in (
        click.option("--suite", "suite_dir", type=click.Path(path_type=Path), help="Suite folder (default: ours)."),
        click.option(
            "--build-dir",
            type=click.Path(path_type=Path),
            help="Where libraries are (default: the user's cache).",
        ),
        click.option("--kernel", "pattern", default="*", help="Only kernels whose name or key matches this glob."),
        click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
        click.option("--tier", type=click.Choice(["core", "nightly", "weekly"]), default="core", show_default=True),
    ):
        command = option(command)
    return command


@kernels.command("list")
@_options
def list_kernels(suite_dir: Path | None, pattern: str, device: str, tier: str, *, build_dir: Path | None) -> None:
    """Show every workload, with its work and whether it can run here."""
    del build_dir
    _, chosen = _load(suite_dir, pattern=pattern, device=device, tier=tier)
    from runners.kernels_run import why_skipped

    rows = [["workload", "family", "tier", "GFLOP", "MB", "note"]]
    for bound in chosen:
        problem, axes = bound.implementation.problem, bound.axes
        size_mb = problem.bytes(axes, bound.implementation.dtype) / 1e6
        note = why_skipped(bound.implementation) or ("control" if bound.implementation.control else "")
        gflop = f"{problem.flops(axes) / 1e9:.3g}"
        rows.append([bound.key, problem.family, bound.workload.tier, gflop, f"{size_mb:.3g}", note])
    _print_table(rows)


@kernels.command("check")
@_options
def check_kernels(suite_dir: Path | None, pattern: str, device: str, tier: str, *, build_dir: Path | None) -> None:
    """Compare every kernel with its float64 reference; exit 1 when one is wrong or does not run."""
    suite, chosen = _load(suite_dir, pattern=pattern, device=device, tier=tier)
    from runners.kernels_run import check_all

    rows = _collect(check_all(suite, chosen, build_dir=build_dir or _build_dir(), seeds=CHECK_SEEDS), chosen, "checked")
    _print_table([["workload", "result"], *([row.key, _result(row)] for row in rows)])
    _finish(rows)


@kernels.command("run")
@_options
@click.option("--seconds", default=0.1, show_default=True, help="Time to spend on each workload.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of a table.")
def run_kernels(
    suite_dir: Path | None,
    pattern: str,
    device: str,
    tier: str,
    *,
    build_dir: Path | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Check and time every kernel: the author's quick look (compare two commits with `kernelwatch compare`)."""
    suite, chosen = _load(suite_dir, pattern=pattern, device=device, tier=tier)
    from runners.kernels_run import time_all

    rows = _collect(time_all(suite, chosen, build_dir=build_dir or _build_dir(), budget_s=seconds), chosen, "ran")
    if as_json:
        for row in rows:
            click.echo(json.dumps(dataclasses.asdict(row)))
    else:
        _print_table(timing_table(rows, chosen))
    _finish(rows)


def timing_table(rows: Sequence[Row], chosen: Sequence[BoundWorkload]) -> list[list[str]]:
    """Rows of text; `x control` is the control's time on the same problem and axes over the kernel's."""
    from runners.kernels_run import place

    controls: dict[Any, float] = {}
    for row, bound in zip(rows, chosen, strict=True):
        if row.control and row.median_s is not None:
            controls.setdefault(place(bound), row.median_s)
    table = [["workload", "time", "spread", "GFLOP/s", "GB/s", "x control", "result"]]
    for row, bound in zip(rows, chosen, strict=True):
        if row.median_s is None or row.spread is None:
            table.append([row.key, "", "", "", "", "", _result(row)])
            continue
        control_s = controls.get(place(bound))
        ratio = "control" if row.control else "" if control_s is None else f"{control_s / row.median_s:.2f}"
        rate, bandwidth = row.flops / row.median_s / 1e9, row.bytes / row.median_s / 1e9
        figures = [_duration(row.median_s), f"{row.spread:.1%}", f"{rate:.1f}", f"{bandwidth:.1f}", ratio]
        table.append([row.key, *figures, _result(row)])
    return table


def _load(suite_dir: Path | None, *, pattern: str, device: str, tier: str) -> tuple[Suite, list[BoundWorkload]]:
    for name in ONE_THREAD:
        os.environ[name] = "1"
    for name in OVERRIDES:
        os.environ.pop(name, None)
    from runners.errors import DiscoveryError
    from runners.kernels_run import select
    from runners.measure.discover import load_suite

    try:
        suite = load_suite(suite_dir or _bundled())
    except DiscoveryError as error:
        raise click.ClickException(str(error)) from error
    chosen = select(suite, tier=tier, device=device, pattern=pattern)
    if not chosen:
        raise click.ClickException(f"no {device} workload of the {tier} tier matches {pattern!r}")
    return suite, chosen


def _bundled() -> Path:
    """The suite of the current folder if there is one, else the installed one (found, never imported)."""
    here = Path("kernels_under_test")
    if here.is_dir():
        return here
    spec = importlib.util.find_spec("kernels_under_test")
    if spec is None or spec.origin is None:
        raise click.ClickException("there is no kernels_under_test folder here: give one with --suite")
    return Path(spec.origin).parent


def _build_dir() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "kernelwatch" / "build"


def _collect(rows: Iterable[Row], chosen: Sequence[BoundWorkload], verb: str) -> list[Row]:
    """Gather the rows, showing on stderr which workload is at work."""
    found: list[Row] = []
    waiting = iter(rows)
    on_terminal = sys.stderr.isatty()
    for number, bound in enumerate(chosen, 1):
        if on_terminal:
            click.echo(f"\r\033[K[{number}/{len(chosen)}] {bound.key}", nl=False, err=True)
        found.append(next(waiting))
    click.echo(("\r\033[K" if on_terminal else "") + f"{verb} {len(found)} workloads", err=True)
    return found


def _result(row: Row) -> str:
    first_lines = " ".join(row.reason.splitlines()[:3])
    return row.status.value + (f": {first_lines}" if first_lines else "")


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _finish(rows: Sequence[Row]) -> None:
    bad = [row for row in rows if row.status.value not in {"ok", "skipped"}]
    if bad:
        raise click.ClickException(f"{len(bad)} of {len(rows)} workloads failed")
