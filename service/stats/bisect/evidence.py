"""From the append-only log to arrays: which build each time belongs to, and what can be compared with what.

Two rules live here.  Commits with the code of their parent are one *group*: they share a build and cannot be blamed
apart.  Times are only ever compared within a *block*, a few runs that followed each other on one machine, so that the
machine's mood of another hour (or day) never becomes a commit's speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.stats.bisect.types import BisectProblem, Candidate, Failure, FailureKind, Observation, Phase

BLOCK_RUNS = 8  # runs that share one offset; a machine drifts little in so short a time
BATCH_GAP_RUNS = 4.0  # the pause between two batches, in runs
MANY_RUNS = 500  # from here on blocks are twice as long
INFRASTRUCTURE_TRIES_ENDS = 10
STUCK_FAILURES = 12
INFRASTRUCTURE_TRIES = 3  # after so many the position is left alone

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """Runs of commits with equal code; group 0 holds the good end, the last one the bad end."""

    of_position: Ints  # position -> group
    first: Ints  # group -> its first position: the only commit of the group that changed anything
    last: Ints
    probe: Ints  # group -> the position to build and measure
    weight: Floats  # prior share of a step at this group; group 0 has none
    build_cost_s: Floats
    built: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many different codes the range holds."""
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The usable part of a log."""

    groups: Groups
    log_s: Floats  # signed so that the alarm's direction is up
    group: Ints
    block: Ints
    sandwich: NDArray[np.bool_]
    block_time: Floats  # in runs of its session
    block_session: Ints
    failed: frozenset[int]  # groups that will not be tried again
    stuck: bool  # the last entries are all trouble with the machine
    built: NDArray[np.bool_]
    measurements: int  # runs that this bisection paid for
    build_attempts: int
    rejected: int
    sign: int


def group_commits(candidates: Sequence[Candidate]) -> Groups:
    """Merge each commit that has its parent's code with that parent."""
    count = len(candidates)
    of_position = np.zeros(count + 1, dtype=np.int64)
    for candidate in candidates:
        step = 0 if candidate.same_as_parent else 1
        of_position[candidate.position] = of_position[candidate.position - 1] + step
    positions = np.arange(count + 1)
    total = int(of_position[-1]) + 1
    first = np.searchsorted(of_position, np.arange(total)).astype(np.int64)
    last = (np.append(first[1:], count + 1) - 1).astype(np.int64)
    built_position = np.array([False] + [c.built for c in candidates])
    probe = first.copy()
    probe[-1] = count
    for position in positions[built_position][::-1]:
        probe[of_position[position]] = position
    built = np.zeros(total, dtype=bool)
    built[of_position[built_position]] = True
    weight = np.array([0.0] + [max(candidates[p - 1].prior_weight, 0.0) for p in first[1:]])
    if total > 1:
        weight[1:] = np.maximum(weight[1:], 1e-3 * max(float(weight.max()), 1e-300))
        weight /= weight.sum()
    cost = np.array([0.0] + [c.cost_build_s for c in candidates])[probe]
    return Groups(of_position, first, last, probe, weight, cost, built)


def collect(problem: BisectProblem, log: Sequence[Observation | Failure]) -> Evidence:
    """Sort the log into arrays; what belongs to another build or environment is left out and counted."""
    groups = group_commits(_with_equal_builds(problem.candidates, log))
    expected = {c.position: c.build for c in problem.candidates if c.build}
    sign = 1 if problem.alarm_effect >= 0 else -1
    batches: dict[tuple[int, str, str], list[Observation]] = {}
    failures: dict[int, list[str]] = {}
    rejected = measurements = 0
    for entry in log:
        if isinstance(entry, Failure):
            failures.setdefault(int(groups.of_position[entry.position]), []).append(str(entry.kind))
            continue
        measurements += entry.phase != Phase.EARLIER
        foreign = bool(problem.environment) and entry.environment != problem.environment
        other_build = bool(entry.build) and entry.build != expected.get(entry.position, entry.build)
        if foreign or other_build or not (math.isfinite(entry.seconds) and entry.seconds > 0):
            rejected += 1
            continue
        batches.setdefault((entry.batch, entry.machine, entry.environment), []).append(entry)
    logs: list[float] = []
    group: list[int] = []
    block: list[int] = []
    sandwich: list[bool] = []
    block_time: list[float] = []
    block_session: list[int] = []
    sessions: dict[tuple[object, ...], int] = {}
    clocks: dict[int, float] = {}
    block_runs = BLOCK_RUNS if sum(map(len, batches.values())) <= MANY_RUNS else 2 * BLOCK_RUNS
    blocks = 0
    for key, runs in batches.items():
        earlier = runs[0].phase == Phase.EARLIER
        session = sessions.setdefault((*key[1:], key[0] if earlier else None), len(sessions))
        clock = clocks.get(session, 0.0)
        pieces = max(1, round(len(runs) / block_runs))
        for index, run in enumerate(runs):
            logs.append(sign * math.log(run.seconds))
            group.append(int(groups.of_position[run.position]))
            block.append(blocks + index * pieces // len(runs))
            sandwich.append(run.phase == Phase.SANDWICH)
        block_time += [clock + (index + 0.5) * len(runs) / pieces for index in range(pieces)]
        block_session += [session] * pieces
        clocks[session] = clock + len(runs) + BATCH_GAP_RUNS
        blocks += pieces
    built = groups.built.copy()
    built[group] = True
    return Evidence(
        groups=groups,
        log_s=np.array(logs, dtype=np.float64),
        group=np.array(group, dtype=np.int64),
        block=np.array(block, dtype=np.int64),
        block_time=np.array(block_time, dtype=np.float64),
        block_session=np.array(block_session, dtype=np.int64),
        sandwich=np.array(sandwich, dtype=bool),
        failed=frozenset(g for g, kinds in failures.items() if _given_up(kinds, g, groups.count) and g not in group),
        stuck=_is_stuck(log, set(group), groups),
        built=built,
        measurements=measurements,
        build_attempts=len(set(group) | {g for g, kinds in failures.items() if FailureKind.BUILD in kinds}),
        rejected=rejected,
        sign=sign,
    )


def _with_equal_builds(candidates: Sequence[Candidate], log: Sequence[Observation | Failure]) -> tuple[Candidate, ...]:
    """Neighbours whose builds turned out to be the same: the later one changed nothing.

    A time can differ between two runs of one program, so a sandwich of identical builds proves nothing.
    """
    builds = {e.position: e.build for e in log if isinstance(e, Observation) and e.build}
    return tuple(
        replace(c, same_as_parent=True) if builds.get(c.position, "") == builds.get(c.position - 1) else c
        for c in candidates
    )


def _given_up(kinds: list[str], group: int, count: int) -> bool:
    """A broken build or a crash is final; trouble with the machine is tried again, at the ends more often."""
    own = any(kind != FailureKind.INFRASTRUCTURE for kind in kinds)
    tries = INFRASTRUCTURE_TRIES_ENDS if group in {0, count - 1} else INFRASTRUCTURE_TRIES
    return own or len(kinds) >= tries


def _is_stuck(log: Sequence[Observation | Failure], measured: set[int], groups: Groups) -> bool:
    """Nothing but failures lately that are no broken build: somebody has to look at the machine."""
    trailing = 0
    for entry in reversed(log):
        if not isinstance(entry, Failure):
            break
        known = int(groups.of_position[entry.position]) in measured
        trailing += known or entry.kind == FailureKind.INFRASTRUCTURE
    return trailing >= STUCK_FAILURES
