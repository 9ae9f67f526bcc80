"""Fault F10 with real processes: kernels that reach for the runner's memory, environment and files, or turn its clock."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runners.measure.protocol import Flag
from service.contract import MeasurementStatus

REACH = """
import os
reached = []
own = str(os.getpid())
for pid in {{*filter(str.isdigit, os.listdir("/proc")), "{pid}"}} - {{own}}:
    try:
        with open(f"/proc/{{pid}}/environ", "rb") as file:
            if {variable!r} in file.read():
                reached.append("environment")
    except OSError:
        pass
    try:
        with open(f"/proc/{{pid}}/mem", "rb", 0) as file:
            file.seek({address})
            if file.read(len({secret!r})) == {secret!r}:
                reached.append("memory")
    except (OSError, ValueError, OverflowError):
        pass
    try:
        for number in os.listdir(f"/proc/{{pid}}/fd"):
            if os.path.realpath(f"/proc/{{pid}}/fd/{{number}}").endswith({name!r}):
                with open(f"/proc/{{pid}}/fd/{{number}}", "rb") as file:
                    reached.append("files" if file.read() == {secret!r} else "nothing")
    except OSError:
        pass
if reached:
    raise RuntimeError("reached " + ", ".join(sorted(set(reached))))
"""

TURN_THE_CLOCK = """
import gc
from runners.measure.timer import CpuTimer
for timer in [found for found in gc.get_objects() if type(found) is CpuTimer]:
    wall, cpu = timer._wall_clock, timer._cpu_clock
    timer._wall_clock, timer._cpu_clock = (lambda: wall() // 20), (lambda: cpu() // 20)
"""


@pytest.fixture
def reach(tmp_path):
    """Code that looks for secrets of this process, which holds some in its memory and in an open file."""
    secret = os.urandom(16).hex().encode()
    held = ctypes.create_string_buffer(secret)
    (tmp_path / "token-of-the-runner").write_bytes(secret)
    variable = max(Path("/proc/self/environ").read_bytes().split(b"\0"), key=len)
    with (tmp_path / "token-of-the-runner").open("rb"):
        yield REACH.format(
            pid=os.getpid(),
            variable=variable,
            address=ctypes.addressof(held),
            secret=secret,
            name="token-of-the-runner",
        )
    assert held.value == secret  # it was there all the time


def hostile_of(report):
    return next(m for m in report.measurements if m.benchmark == "hostile")


def test_a_kernel_reaches_nothing_of_the_runner(repository, measure, reach):
    found = hostile_of(measure(repository.hostile(reach)))
    assert (found.status, found.error) == (MeasurementStatus.OK, None)


def test_without_the_sandbox_the_same_code_reaches_the_environment_and_the_files(reach):
    plain = subprocess.run([sys.executable, "-c", reach], capture_output=True, text=True, check=False)
    assert re.search(r"reached environment, files(, memory)?$", plain.stderr.strip())


def test_a_kernel_that_turns_the_timer_of_its_process_is_called_implausible(repository, measure, monkeypatch):
    commit = repository.hostile(TURN_THE_CLOCK)
    assert Flag.IMPLAUSIBLE in hostile_of(measure(commit)).flags
    monkeypatch.setattr("runners.measure.team.claims_too_little", lambda **_: False)
    assert Flag.IMPLAUSIBLE not in hostile_of(measure(commit)).flags


def test_an_honest_kernel_is_plausible(repository, measure):
    (found,) = [m for m in measure(repository.good()).measurements if m.benchmark == "good"]
    assert Flag.IMPLAUSIBLE not in found.flags
