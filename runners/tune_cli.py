"""`kernelwatch tune`: what this machine allows for quiet measurement; sets what may be set, and puts it back."""

from __future__ import annotations

import os
from pathlib import Path

import click

from runners.local_homes import state_dir


@click.command()
@click.option("--apply", "action", flag_value="apply", help="Set what may be set (until --restore).")
@click.option("--restore", "action", flag_value="restore", help="Put back what --apply changed, also after a crash.")
@click.option(
    "--state-dir", "folder", type=click.Path(path_type=Path), default=state_dir, help="As of the runner that it is for."
)
def tune(action: str | None, folder: Path) -> None:
    """Show what makes this machine quiet or noisy.

    With a GPU, --apply looks for the highest SM clock that it holds at full load: up to six minutes, and as root.
    """
    from runners.device.cpu import knobs
    from runners.device.cuda import tune as gpu

    journal = folder / "tuned.json"
    if action == "restore":
        done = knobs.restore(journal) + _said(gpu.restore(folder))
        click.echo("\n".join(f"put back {line}" for line in done) or "nothing was changed, nothing to put back")
        return
    for name, value, advice in _survey(folder):
        click.echo(f"{name:22} {value:34} {advice}")
    found = knobs.find_knobs()
    for knob in found:
        can = "can be set" if knob.settable else "cannot be set by this user"
        advice = "" if knob.now == knob.quiet else f"{knob.quiet} would be quieter; {can}"
        click.echo(f"{knob.name:22} {knob.now:34} {advice}")
    if not found:
        click.echo("the machine offers neither governor nor turbo control (as virtual machines do)")
    if journal.exists():
        click.echo("settings were changed before and not put back: `kernelwatch tune --restore`")
    if action == "apply":
        done = knobs.set_quiet(found, journal) + _said(gpu.apply(folder))
        click.echo("\n".join(f"set {line}" for line in done) or "nothing to set")


def _said(sentence: str | None) -> list[str]:
    return [] if sentence is None else [sentence]


def _survey(folder: Path) -> list[tuple[str, str, str]]:
    from runners.device.cpu import facts, pressure
    from runners.device.cpu.device import fifo_allowed
    from runners.device.cuda import tune as gpu

    host = facts.host_facts()
    cores = len(os.sched_getaffinity(0))
    fifo = fifo_allowed()
    stall = pressure.pressure_reading()
    rows = [
        (
            "cpu",
            host["cpu_model"][:34],
            f"{cores} cores may be used" + ("" if cores > 1 else ": the harness shares it"),
        ),
        ("fixed priority", "allowed" if fifo else "not allowed", "" if fifo else "run as root or give RLIMIT_RTPRIO"),
        ("hypervisor", host["hypervisor"], "watch steal" if host["hypervisor"] == "yes" else ""),
        ("isolated cores", host["isolated_cpus"], ""),
        ("cpu pressure", f"{stall['pressure_s']:.0f} s since boot" if stall else facts.UNAVAILABLE, ""),
    ]
    board, advice = gpu.survey(folder)
    return [*rows, ("gpu", board[:34], advice)]
