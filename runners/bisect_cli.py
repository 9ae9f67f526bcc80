"""`kernelwatch bisect GOOD BAD`: which commit made a kernel slower, on this machine, without any service.

The engine that the service runs (`service.stats.bisect`) decides; the comparison that `kernelwatch compare` runs
measures: interleaved palindromes in fresh processes, one time per process and commit. Nothing is stored.

1. Both ends are compared on every workload that `--kernel` matches; the clearest one leads.
2. The engine names the next batch, or its verdict; after each batch the belief so far is shown.
3. It ends with one commit (exit 0), with none or several that cannot be told apart (2), or with an error (3).
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from runners.compare_cli import BLOCK_S, EXIT_ERROR, QUARTETS, Seconds, Wanted, check_out
from runners.device.base import Device
from runners.errors import RunnerError
from runners.history import Step, steps_between
from runners.local_homes import state_dir
from runners.measure.pairs import common_clock
from runners.measure.protocol import Clock, usable
from runners.measure.session import SessionResult, measure_commits
from runners.measure.team import Subject, Team
from service.contract import FailureStage, MeasurementReport, MeasurementStatus, ProtocolParams, SampleBlock
from service.stats import bisect as engine

EXIT_NOT_NAMED = 2
FIRST_PAIRS = 5
PROCESSES_MIN, PROCESSES_MAX = 3, 8
NOISE_SD_MIN = 0.002
EFFECT_MIN = 0.005  # an alarm of nothing at all would leave the engine without a size to look for
Entry = engine.Observation | engine.Failure


@dataclass(frozen=True, slots=True)
class AllProcesses:
    """Measure every process that was asked for: the engine decides when it is enough."""

    processes_min: int

    def finished(self, entries: Sequence[object], *, processes: int) -> bool:  # noqa: ARG002
        """Never before."""
        return False


@dataclass(slots=True)
class Bench:
    """The repository's commits on this machine's device; checks each out when it is first measured."""

    stack: ExitStack
    repo: Path
    suite: str
    steps: Sequence[Step]
    device: Device
    rng: random.Random
    tier: str = "core"
    device_s: float = 0.0
    subjects: dict[int, Subject] = field(default_factory=dict)

    def measure(self, positions: Sequence[int], *, processes: int, workloads: Sequence[str] = ()) -> SessionResult:
        """Measure these commits interleaved, in so many fresh processes each."""
        from runners.measure.local_child import LocalChild

        for position in positions:
            if position not in self.subjects:
                self.subjects[position] = check_out(self.stack, self.repo, self.suite, self.steps[position].sha)
        result = measure_commits(
            [self.subjects[position] for position in positions],
            spawn=lambda _subject, _process: LocalChild(),
            device=self.device,
            params=ProtocolParams(processes=processes, blocks=QUARTETS, block_s=BLOCK_S),
            workloads=tuple(workloads),
            rng=self.rng,
            clock=time.monotonic,
            stopping=AllProcesses(processes),
        )
        self.device_s += result.device_s
        return result


@dataclass(slots=True)
class Search:
    """One search: what is known, and what the engine makes of it."""

    bench: Bench
    workload: str
    alarm: tuple[float, float]  # log effect of the bad end over the good one, and its standard error
    budget_s: float
    log: list[Entry] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)

    def problem(self) -> engine.BisectProblem:
        """The engine's task, with noise and cost as they have shown themselves so far."""
        times = [entry for entry in self.log if isinstance(entry, engine.Observation)]
        return engine.BisectProblem(
            candidates=tuple(
                engine.Candidate(
                    position=position,
                    sha=step.sha,
                    built=any(seen.position == position for seen in times),
                    same_as_parent=step.suite_tree == self.bench.steps[position - 1].suite_tree,
                )
                for position, step in enumerate(self.bench.steps)
                if position > 0
            ),
            alarm_effect=self.alarm[0],
            alarm_effect_se=self.alarm[1],
            noise_sd=_noise_sd(times),
            environment_changed=False,
            budget_s=self.budget_s,
            measure_cost_s=max(self.bench.device_s / len(times), 1e-3) if times else 1.0,
        )

    def take(self, result: SessionResult, positions: Sequence[int], phase: engine.Phase) -> None:
        """Add what a batch found to the log."""
        position_of = {self.bench.steps[position].sha: position for position in positions}
        found = [report for report in result.measurements if report.workload == self.workload]
        for failure in result.commit_failures:
            broken = failure.failure.stage in {FailureStage.BUILD, FailureStage.CHECKOUT}
            kind = engine.FailureKind.BUILD if broken else engine.FailureKind.CRASH
            self.log.append(engine.Failure(position_of[failure.sha], kind))
        good = [report for report in found if report.status is MeasurementStatus.OK]
        for report in found:
            if report.status is not MeasurementStatus.OK:
                self.log.append(engine.Failure(position_of[report.sha], engine.FailureKind.CRASH))
        levels = process_levels(good, reference_s=result.canary_reference_s)
        for process in sorted({process for by_process in levels.values() for process in by_process}):
            for sha, by_process in levels.items():
                if process in by_process:
                    self.log.append(
                        engine.Observation(
                            batch=len(self.batches),
                            machine="",
                            environment="",
                            position=position_of[sha],
                            build="",
                            seconds=by_process[process],
                            phase=phase,
                        )
                    )
        belief = engine.posterior(self.problem(), self.log)
        self.batches.append(
            {
                "phase": str(phase),
                "commits": [self.bench.steps[position].sha for position in positions],
                "posterior": [belief.none, *belief.commits],
                "device_s": self.bench.device_s,
            }
        )

    def run(self, tell: Callable[[str], None]) -> engine.Outcome:
        """Measure what the engine asks for until it has a verdict."""
        while True:
            step = engine.next_step(self.problem(), self.log)
            if isinstance(step, engine.Outcome):
                return step
            if isinstance(step, engine.Wait):  # nothing runs besides us, so there is nothing to wait for
                raise RunnerError(f"the search stands still: {step.reason}")
            positions = tuple(dict.fromkeys((*step.partners, step.position)))
            processes = max(step.order.count(position) for position in positions)
            tell(f"{step.phase}: measuring {_names(self.bench.steps, positions)}")
            processes = min(max(processes, PROCESSES_MIN), PROCESSES_MAX)
            result = self.bench.measure(positions, processes=processes, workloads=[self.workload])
            before = len(self.log)
            self.take(result, positions, step.phase)
            if len(self.log) == before:
                raise RunnerError("a batch gave neither a time nor a failure")
            tell(self.so_far())

    def so_far(self) -> str:
        """The belief after the last batch, in a line."""
        none, *commits = self.batches[-1]["posterior"]
        best = sorted(range(len(commits)), key=lambda k: -commits[k])[:3]
        shown = ", ".join(f"{commits[k]:.0%} {self.bench.steps[k + 1].sha[:9]}" for k in best if commits[k] >= 0.01)
        return f"  so far {shown or 'no commit stands out'}; {none:.0%} none; {self.bench.device_s:.0f} s on the device"


def process_levels(reports: Sequence[MeasurementReport], *, reference_s: float) -> dict[str, dict[int, float]]:
    """Return per commit and process the median of kernel / canary in seconds, on one clock for all commits."""
    clock = Clock.WALL
    for report in reports:
        clock = max(clock, common_clock(report.blocks, reports[0].blocks, threads=1), key=lambda c: c is Clock.CPU)
    levels: dict[str, dict[int, float]] = {}
    for report in reports:
        ratios: dict[int, list[float]] = {}
        for block in report.blocks:
            if usable(block):
                ratios.setdefault(block.process, []).append(_ratio(block, clock))
        levels[report.sha] = {process: statistics.median(seen) * reference_s for process, seen in ratios.items()}
    return levels


def _ratio(block: SampleBlock, clock: Clock) -> float:
    if clock is Clock.CPU:
        return statistics.median(block.cpu_s) / block.canary_cpu_s
    return statistics.median(block.wall_s) / block.canary_wall_s


def _noise_sd(times: Sequence[engine.Observation]) -> float:
    """Pooled spread of log times within one commit of one batch."""
    groups: dict[tuple[int, int], list[float]] = {}
    for seen in times:
        groups.setdefault((seen.batch, seen.position), []).append(math.log(seen.seconds))
    freedom = sum(len(logs) - 1 for logs in groups.values())
    squares = sum((x - statistics.fmean(logs)) ** 2 for logs in groups.values() for x in logs)
    return max(math.sqrt(squares / freedom), NOISE_SD_MIN) if freedom else 0.01


def effect_of_ends(levels: dict[str, dict[int, float]], *, good: str, bad: str) -> tuple[float, float] | None:
    """Return the mean log ratio of the bad end over the good one over pairs of processes, and its standard error."""
    shared = sorted(levels.get(good, {}).keys() & levels.get(bad, {}).keys())
    if len(shared) < 3:
        return None
    ratios = [math.log(levels[bad][process] / levels[good][process]) for process in shared]
    return statistics.fmean(ratios), max(statistics.stdev(ratios) / math.sqrt(len(ratios)), NOISE_SD_MIN)


def begin(bench: Bench, *, pattern: str, budget_s: float, tell: Callable[[str], None]) -> Search:
    """Compare the ends and start the search on the clearest workload; raises RunnerError if they cannot be measured."""
    last = len(bench.steps) - 1
    keys = workload_keys(bench, position=last, pattern=pattern)
    tell(f"ends: measuring {_names(bench.steps, (0, last))} on {len(keys)} workload{'s' * (len(keys) > 1)}")
    result = bench.measure((0, last), processes=FIRST_PAIRS, workloads=keys)
    alarms: dict[str, tuple[float, float]] = {}
    for key in keys:
        reports = [m for m in result.measurements if m.workload == key and m.status is MeasurementStatus.OK]
        levels = process_levels(reports, reference_s=result.canary_reference_s) if reports else {}
        found = effect_of_ends(levels, good=bench.steps[0].sha, bad=bench.steps[last].sha)
        if found is not None:
            alarms[key] = found
    if not alarms:
        reasons = [f"{f.sha[:9]}: {f.failure.reason}" for f in result.commit_failures]
        reasons += [f"{m.sha[:9]} {m.workload}: {m.error}" for m in result.measurements if m.error]
        raise RunnerError(f"the ends cannot be compared: {'; '.join(reasons) or 'no workload has times of both'}")
    lead = max(alarms, key=lambda key: abs(alarms[key][0]) / alarms[key][1])
    effect, se = alarms[lead]
    tell(f"  {lead}: {math.expm1(effect):+.1%} between the ends")
    sized = math.copysign(max(abs(effect), EFFECT_MIN), effect)
    search = Search(bench, workload=lead, alarm=(sized, se), budget_s=budget_s)
    if len(keys) == 1:  # chosen among several, the first times would flatter the step: then they are only the alarm
        search.take(result, (0, last), engine.Phase.ENDS)
    warning = engine.outlook(search.problem()).warning
    if warning:
        tell(f"  {warning}")
    return search


def workload_keys(bench: Bench, *, position: int, pattern: str) -> tuple[str, ...]:
    """Return the workloads of one commit that the pattern matches; raises RunnerError if there is none."""
    from runners.measure.local_child import LocalChild

    subject = bench.subjects[position] = check_out(bench.stack, bench.repo, bench.suite, bench.steps[position].sha)
    team = Team(
        [subject],
        process=0,
        spawn=lambda _subject, _process: LocalChild(),
        device=bench.device,
        params=ProtocolParams(),
        clock=time.monotonic,
    )
    try:
        described = team.discover(subject.sha, bench.tier)
    finally:
        team.close()
    wanted = Wanted(pattern)
    keys = tuple(str(found["workload"]) for found in described if wanted(str(found["workload"])))
    if not keys:
        raise RunnerError(wanted.no_match(f"of {bench.steps[position].sha[:9]} in the {bench.tier} tier"))
    return keys


def _names(steps: Sequence[Step], positions: Sequence[int]) -> str:
    return " and ".join(f"{steps[position].sha[:9]} ({position} of {len(steps) - 1})" for position in positions)


@click.command("bisect")
@click.argument("good")
@click.argument("bad")
@click.option("--kernel", "pattern", required=True, help="Workload to search on: a glob over names and kernels.")
@click.option("--budget", type=Seconds(), default="120s", show_default=True, help="Measuring time at most.")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", show_default=True)
@click.option("--suite", default="kernels_under_test", show_default=True, help="Folder of the suite in the repository.")
@click.option("--tier", type=click.Choice(["core", "nightly", "weekly"]), default="core", show_default=True)
@click.option("--device", "device_kind", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--cpu", type=int, default=None, help="Core to measure on (default: the last allowed one).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")
def bisect(
    *,
    good: str,
    bad: str,
    pattern: str,
    budget: float,
    repo: Path,
    suite: str,
    tier: str,
    device_kind: str,
    cpu: int | None,
    as_json: bool,
) -> None:
    """Name the commit after GOOD, up to BAD, that changed a kernel's speed; exit 0: named, 2: not named, 3: error."""
    from runners.device import open_device

    def tell(line: str) -> None:
        click.echo(line, err=True)

    try:
        with ExitStack() as stack:
            steps = steps_between(repo, good, bad, suite=suite)
            device = open_device(device_kind, state_dir=state_dir(), cpu=cpu)
            bench = Bench(stack, repo=repo, suite=suite, steps=steps, device=device, rng=random.Random(), tier=tier)
            search = begin(bench, pattern=pattern, budget_s=budget, tell=tell)
            outcome = search.run(tell)
    except RunnerError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_ERROR)
    click.echo(json.dumps(as_object(search, outcome), indent=1) if as_json else as_words(search, outcome))
    sys.exit(0 if _is_named(outcome) else EXIT_NOT_NAMED)


def _is_named(outcome: engine.Outcome) -> bool:
    return outcome.verdict in {engine.Verdict.CULPRIT, engine.Verdict.CULPRITS}


def as_object(search: Search, outcome: engine.Outcome) -> dict[str, Any]:
    """What `--json` prints."""
    steps = search.bench.steps
    return {
        "verdict": str(outcome.verdict),
        "reason": outcome.reason,
        "reason_code": str(outcome.reason_code),
        "workload": search.workload,
        "culprits": [
            {"sha": steps[k].sha, "subject": steps[k].subject, "author": steps[k].author}
            for k in (outcome.positions if _is_named(outcome) else ())
        ],
        "candidates": [steps[k].sha for k in outcome.positions],
        "probability": outcome.probability,
        "effect": math.expm1(outcome.effect),
        "interval": [math.expm1(outcome.effect_low), math.expm1(outcome.effect_high)],
        "posterior": {step.sha: share for step, share in zip(steps[1:], outcome.posterior, strict=True)},
        "batches": search.batches,
        "measurements": outcome.measurements,
        "device_s": search.bench.device_s,
        "needed": outcome.needed,
    }


def as_words(search: Search, outcome: engine.Outcome) -> str:
    """The verdict for people, and the command that shows it."""
    steps = search.bench.steps
    lines = [f"{outcome.verdict}: {outcome.reason}", f"workload  {search.workload}"]
    for position in outcome.positions if _is_named(outcome) else ():
        step = steps[position]
        lines += [f"commit    {step.sha[:12]}  {step.subject}  ({step.author})"]
        lines += [f"check it  kernelwatch compare {step.sha[:12]}~1 {step.sha[:12]} --kernel '{search.workload}'"]
    if _is_named(outcome):
        interval = f"{math.expm1(outcome.effect_low):+.1%} to {math.expm1(outcome.effect_high):+.1%}"
        lines.append(f"size      {math.expm1(outcome.effect):+.1%} ({interval}), probability {outcome.probability:.3f}")
    elif outcome.needed:
        lines.append(f"needed    {outcome.needed}")
    lines.append(f"cost      {outcome.measurements} times, {search.bench.device_s:.0f} s on the device")
    return "\n".join(lines)
