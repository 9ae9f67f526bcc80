"""Measure the measurer: spread, false alarms and power of ours and of public tools, in one run on this machine.

    python benchmarks/noise.py --rounds 6

Regimes: `quiet` (plain scheduling, whatever the machine does by itself), `neighbour` (plain scheduling, a process that
burns a random core in bursts) and, where this user may set it, `fifo` (the measured core is ours). Every tool gets the
same seconds of kernel time; tools, kernels and slowdowns come in random order within a round, so that all see the same
spells of noise. A round of one regime takes about two minutes. pytest-benchmark and pyperf are installed into a private
folder when they are missing; without network their rows say so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "noise_kernels.py"
STATE = HERE.parent / ".state" / "bench-noise"
PEERS = ("pytest-benchmark", "pyperf")
KERNEL_S = 2.0  # of one figure; a comparison gets twice that
SLOWDOWNS = (0.0, 2.0, 5.0)
FIGURE = -1.0  # instead of a slowdown: one version alone
KERNEL_NAMES = ("gemm", "softmax")
Results = dict[tuple[str, str, str], list[float]]  # (what, tool, kernel or slowdown) -> values
NEIGHBOUR = """
import os, random, time
cores, x, parent = sorted(os.sched_getaffinity(0)), bytearray(1 << 24), os.getppid()
while os.getppid() == parent:
    time.sleep(min(random.expovariate(1 / 0.35), 2.0))
    os.sched_setaffinity(0, {random.choice(cores)})
    end, memory = time.monotonic() + min(random.expovariate(1 / 0.25), 1.5), random.random() < 0.5
    while time.monotonic() < end:
        x = bytearray(x) if memory else x
        sum(range(1000))
    os.sched_setaffinity(0, set(cores))
"""


def environment() -> dict[str, str]:
    """What every measured process gets."""
    own = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NOISE_CALIBRATION": str(STATE / "calibration.json")}
    paths = os.pathsep.join([str(HERE), str(HERE.parent)])
    return {**os.environ, **own, "PYTHONPATH": paths}


def peer_python() -> str | None:
    """A Python with both peers, made once; None when they cannot be installed."""
    python = STATE / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(STATE / "venv", with_pip=True)
    probe = [str(python), "-c", "import pyperf, pytest_benchmark, numpy"]
    have = subprocess.run(probe, check=False, capture_output=True)
    if have.returncode:
        command = [str(python), "-m", "pip", "install", "-q", "numpy", "pytest", "pytest-benchmark", "pyperf"]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
    return str(python)


def run(command: list[str], *, cpu: int | None = None) -> str:
    """Run one tool to its end, on one core when asked."""
    pinned = ["taskset", "-c", str(cpu), *command] if cpu is not None else command
    return subprocess.run(pinned, env=environment(), check=True, capture_output=True, text=True, timeout=300).stdout


def peer_figures(python: str, tool: str, kernel: str, slow: float, cpu: int) -> list[float]:
    """The values that a peer reports for one version: its figure is their median."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        if tool == "pyperf":
            setup = f"import noise_kernels; f = noise_kernels.make({kernel!r}, {slow})"
            shape = ["-p5", "-n3", "-w1", f"--min-time={KERNEL_S / 20}"]
            inherit = "--inherit-environ=PYTHONPATH,OPENBLAS_NUM_THREADS,NOISE_CALIBRATION"
            run([python, "-m", "pyperf", "timeit", "-q", *shape, inherit, "-o", str(out), "-s", setup, "f()"], cpu=cpu)
            runs = json.loads(out.read_text())["benchmarks"][0]["runs"]
            return [value for one in runs for value in one.get("values", ())]
        test = Path(folder) / "test_kernel.py"
        make = f"import noise_kernels\nf = noise_kernels.make({kernel!r}, {slow})\n"
        body = make + "def test_k(benchmark):\n    benchmark(f)\n"
        test.write_text(body)
        options = [f"--benchmark-max-time={KERNEL_S}", f"--benchmark-json={out}", "-p", "no:cacheprovider"]
        run([python, "-m", "pytest", "-q", str(test), *options], cpu=cpu)
        return [float(json.loads(out.read_text())["benchmarks"][0]["stats"]["median"])]


def peer_alarms(tool: str, base: list[float], head: list[float]) -> bool:
    """The tool's own rule: Welch's t at 95 % for pyperf, 5 % off the last run's median for pytest-benchmark."""
    if tool == "pyperf":
        from scipy.stats import ttest_ind

        return bool(ttest_ind(base, head, equal_var=False).pvalue < 0.05)
    return abs(statistics.median(head) / statistics.median(base) - 1) > 0.05


def ours(command: str, kernel: str, regime: str, cpu: int, *options: str) -> dict[str, Any]:
    """One answer of `measure-module` or `compare-module`."""
    priority = "auto" if regime == "fifo" else "plain"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        budget = KERNEL_S * (2 if command == "compare-module" else 1)
        where = ["--module", str(KERNELS), "--kernel", kernel, "--cpu", str(cpu), "--priority", priority]
        limits = ["--budget", str(budget), "--json", str(out)]
        run([sys.executable, "-m", "service.cli", command, *where, *limits, *options])
        return dict(json.loads(out.read_text()))


def play(regime: str, rounds: int, *, cpu: int, python: str | None, rng: random.Random) -> Results:
    """All rounds of one regime, in random order within each."""
    results: Results = defaultdict(list)
    jobs: list[tuple[str, float]] = [("ours", FIGURE), *(("ours", slow) for slow in SLOWDOWNS)]
    jobs += [(peer, slow) for peer in PEERS for slow in (0.0, 5.0)] if python else []
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) if regime == "neighbour" else None
    try:
        for number in range(rounds):
            todo = [(kernel, job) for kernel in KERNEL_NAMES for job in jobs]
            rng.shuffle(todo)
            for kernel, (tool, slow) in todo:
                if tool == "ours":
                    play_ours(results, kernel, slow, regime=regime, cpu=cpu)
                else:
                    play_peer(results, str(python), tool, kernel, slow, cpu=cpu)
            sys.stderr.write(f"{regime}: round {number + 1} of {rounds}\n")
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
    return results


def play_ours(results: Results, kernel: str, slow: float, *, regime: str, cpu: int) -> None:
    """One figure, or one comparison."""
    if slow == FIGURE:
        answer = ours("measure-module", kernel, regime, cpu)
        results["figure", "ours", kernel].append(answer["figures"]["figure"])
        return
    start = time.monotonic()
    answer = ours("compare-module", kernel, regime, cpu, "--slow-b", str(slow))
    results["wall", "ours", ""].append(time.monotonic() - start)
    results["alarm", "ours", f"{slow:g}"].append(answer["verdict"] in {"regression", "improvement"})
    results["ratio", "ours", f"{slow:g}"].append(answer["ratio"])
    results["contended", "ours", ""].append("contended" in answer["flags"])


def play_peer(results: Results, python: str, tool: str, kernel: str, slow: float, *, cpu: int) -> None:
    """Base, then head, as people use these tools."""
    base = peer_figures(python, tool, kernel, 0.0, cpu)
    head = peer_figures(python, tool, kernel, slow, cpu)
    results["figure", tool, kernel].append(statistics.median(base))
    results["alarm", tool, f"{slow:g}"].append(peer_alarms(tool, base, head))
    results["ratio", tool, f"{slow:g}"].append(statistics.median(head) / statistics.median(base))


def share(values: list[float]) -> str:
    """How many of how many."""
    return f"{sum(map(bool, values))}/{len(values)}" if values else "-"


def table(regime: str, results: Results, tools: list[str]) -> str:
    """The target table of one regime."""
    widths = (18, 12, 11, 10, 10, 8)
    rows: list[tuple[str, ...]] = [("tool", "A/A ratio sd", "A/A alarms", "+2 % seen", "+5 % seen", "spread")]
    for tool in tools:
        logs = [math.log(ratio) for ratio in results["ratio", tool, "0"]]
        figures = [results["figure", tool, kernel] for kernel in KERNEL_NAMES]
        spread = [statistics.stdev(values) / statistics.mean(values) for values in figures if len(values) > 1]
        alarms = [share(results["alarm", tool, slow]) for slow in ("0", "2", "5")]
        sd = f"{statistics.stdev(logs):.2%}" if len(logs) > 1 else "-"
        rows.append((tool, sd, *alarms, f"{statistics.mean(spread):.1%}" if spread else "-"))
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    flagged, wall_s = share(results["contended", "ours", ""]), statistics.mean(results["wall", "ours", ""])
    return "\n".join(["", regime, *lines, f"ours: flagged contended {flagged}; {wall_s:.1f} s a comparison"])


def main() -> None:
    """Play every regime that this user may have and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--regimes", default="quiet,neighbour,fifo")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    STATE.mkdir(parents=True, exist_ok=True)
    cpu = max(os.sched_getaffinity(0))
    python = None if arguments.no_peers else peer_python()
    if python is None:
        sys.stderr.write("the peers are left out: they are not wanted or cannot be installed\n")
    run([sys.executable, str(KERNELS)], cpu=cpu)
    from runners.device.cpu.device import fifo_allowed

    for regime in arguments.regimes.split(","):
        if regime == "fifo" and not fifo_allowed():
            sys.stdout.write("\nfifo: this user may not set fixed priorities\n")
            continue
        found = play(regime, arguments.rounds, cpu=cpu, python=python, rng=random.Random(arguments.seed))
        sys.stdout.write(table(regime, found, ["ours", *(PEERS if python else ())]) + "\n")


if __name__ == "__main__":
    main()
