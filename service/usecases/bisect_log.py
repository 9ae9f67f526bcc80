"""The log of a bisection, rebuilt from what its runs have measured.

One entry per process and commit: the median over that process's blocks of kernel / canary, on the figure's clock,
rescaled to the series' seconds. A commit that could not be built is a failure, never a slow commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy.orm import Session

from service.contract import FailureStage, MeasurementStatus
from service.domain.states import FINAL_RUN_STATES, RunState
from service.stats import bisect as engine
from service.stats.paired import process_levels
from service.store import bisections, lineage, points, regressions
from service.store.bisections import ProbeRun
from service.store.points import RawMeasurement
from service.store.tables import Bisection, BisectionProbe
from service.usecases.effects import blocks_on, shared_clocks

Entry = engine.Observation | engine.Failure
Found = TypeVar("Found")
DEFAULT_NOISE_SD = 0.01
MIN_NOISE_SD = 0.002
DEFAULT_BUILD_S = 5.0


@dataclass(frozen=True, slots=True)
class BisectionLog:
    """What is known so far: entries per series, probes under way, and what it has cost."""

    observations: dict[int, tuple[engine.Observation, ...]]  # by series
    failures: tuple[engine.Failure, ...]
    series_failures: dict[int, tuple[engine.Failure, ...]]
    running: tuple[engine.Probe, ...]
    newly_finished: tuple[BisectionProbe, ...]
    next_seq: int
    device_s: float
    measured_positions: frozenset[int]
    codes: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)  # by series and position
    siblings: Mapping[int, frozenset[int]] = field(default_factory=dict)
    build_cost_s: float = DEFAULT_BUILD_S

    def entries(self, series_id: int) -> tuple[Entry, ...]:
        """Return the log as one series sees it, failures of commits included.

        Probes that a new environment measured are in a series of their own; each entry says its environment.
        """
        return (*self.failures, *self._of(self.series_failures, series_id), *self._of(self.observations, series_id))

    def _of(self, by_series: Mapping[int, tuple[Found, ...]], series_id: int) -> Iterator[Found]:
        for sibling in sorted(self.siblings.get(series_id, {series_id})):
            yield from by_series.get(sibling, ())

    def same_as_parent(self, series_id: int, position: int) -> bool:
        """Whether a commit is known to run its predecessor's code: then no time can tell them apart."""
        return any(
            position in codes and codes[position] == codes.get(position - 1)
            for sibling in self.siblings.get(series_id, {series_id})
            if (codes := self.codes.get(sibling)) is not None
        )

    def noise_sd(self, series_id: int) -> float:
        """Return the pooled spread of log times within one commit of one run (sd of one entry)."""
        groups: dict[tuple[int, int], list[float]] = {}
        for seen in self._of(self.observations, series_id):
            groups.setdefault((seen.batch, seen.position), []).append(math.log(seen.seconds))
        squares, freedom = 0.0, 0
        for logs in groups.values():
            mean = sum(logs) / len(logs)
            squares += sum((x - mean) ** 2 for x in logs)
            freedom += len(logs) - 1
        return max(math.sqrt(squares / freedom), MIN_NOISE_SD) if freedom else DEFAULT_NOISE_SD

    @property
    def measure_cost_s(self) -> float:
        """Device-seconds of one entry, from what the entries so far have cost."""
        count = max((len(seen) for seen in self.observations.values()), default=0)
        return self.device_s / count if count and self.device_s > 0 else 1.0


def read_log(session: Session, *, bisection: Bisection, repository_id: int) -> BisectionLog:
    """Rebuild the log of one bisection from the measurements of its probes' runs."""
    probes = bisections.probes_of(session, bisection_id=bisection.id)
    position_of_sha = {sha: position for position, sha in enumerate(bisection.commit_shas)}
    ids = bisections.commit_ids(session, repository_id=repository_id, shas=bisection.commit_shas)
    position_of_id = {ids[sha]: position for sha, position in position_of_sha.items() if sha in ids}
    over = [item for item in probes if item.run.state in FINAL_RUN_STATES]
    raw = points.raw_measurements(session, run_ids=[item.run.id for item in over])
    phases = {item.run.id: item.probe.phase for item in over}
    batches: dict[tuple[int, int], list[tuple[int, RawMeasurement]]] = {}
    series_failures: dict[int, list[engine.Failure]] = {}
    codes: dict[int, dict[int, tuple[str, str]]] = {}
    untimed: dict[int, set[int]] = {}
    for measurement in raw:
        position = position_of_id.get(measurement.commit_id)
        if position is None:
            continue
        if measurement.code is not None:
            codes.setdefault(measurement.series_id, {})[position] = measurement.code
        if measurement.status == MeasurementStatus.OK:
            batches.setdefault((measurement.run_id, measurement.series_id), []).append((position, measurement))
        elif measurement.status == MeasurementStatus.IDENTICAL:
            untimed.setdefault(measurement.series_id, set()).add(position)
        else:
            failure = engine.Failure(position=position, kind=engine.FailureKind.CRASH)
            series_failures.setdefault(measurement.series_id, []).append(failure)
    clocks = shared_clocks(raw)
    changed = {c.series_id for c in regressions.changes_in(session, regression_id=bisection.regression_id)}
    observations: dict[int, list[engine.Observation]] = {}
    for (run_id, series_id), members in batches.items():
        seen = _observe(members, phase=phases[run_id], clock=clocks[run_id, series_id])
        observations.setdefault(series_id, []).extend(seen)
    for series_id, positions in untimed.items():
        known = observations.setdefault(series_id, [])
        for position in sorted(positions - {seen.position for seen in known}):
            build = str(ids[bisection.commit_shas[position]])
            lent = _with_times_of_twin(position, known, codes.get(series_id, {}), build=build)
            if len(lent) == len(known):  # nobody has timed this code: it cannot be placed, and is not asked for again
                failure = engine.Failure(position=position, kind=engine.FailureKind.CRASH)
                series_failures.setdefault(series_id, []).append(failure)
            known[:] = lent
    return BisectionLog(
        observations={key: tuple(seen) for key, seen in observations.items()},
        failures=tuple(failure for item in over for failure in _failures(item, position_of_sha)),
        series_failures={key: tuple(found) for key, found in series_failures.items()},
        running=tuple(_as_probe(item.probe) for item in probes if item.run.state not in FINAL_RUN_STATES),
        newly_finished=tuple(item.probe for item in over if item.probe.posterior is None),
        next_seq=max((item.probe.seq for item in probes), default=-1) + 1,
        device_s=sum(item.run.device_s or 0.0 for item in over),
        siblings=lineage.siblings(session, series_ids={bisection.series_id, *changed}),
        measured_positions=frozenset(seen.position for found in observations.values() for seen in found),
        codes=codes,
    )


def _observe(members: Sequence[tuple[int, RawMeasurement]], *, phase: str, clock: str) -> list[engine.Observation]:
    """Return one batch in the order in which it was run: process by process, the commits turned round each time.

    The build key is the commit. Equal machine code under another launch configuration may differ in speed, so a hash
    of the code alone must not make the engine take two commits for one.
    """
    levels = [
        (position, process_levels(blocks_on(measurement, clock)), measurement) for position, measurement in members
    ]
    processes = sorted({process for _, found, _ in levels for process in found})
    batch: list[engine.Observation] = []
    for turn, process in enumerate(processes):
        for position, found, measurement in levels if turn % 2 == 0 else levels[::-1]:
            if process not in found:
                continue
            batch.append(
                engine.Observation(
                    batch=measurement.run_id,
                    machine=str(measurement.environment_id),
                    environment=measurement.comparable_key,
                    position=position,
                    build=str(measurement.commit_id),
                    seconds=math.exp(found[process]) * measurement.canary_reference_s,
                    phase=phase,
                )
            )
    return batch


def _with_times_of_twin(
    position: int, known: Sequence[engine.Observation], codes: Mapping[int, tuple[str, str]], *, build: str
) -> list[engine.Observation]:
    """Return the log with the times of a commit that runs the very code of this one, as times of this one as well.

    They are what this code takes, and stay beside the times that they were taken with. As evidence of an earlier run
    they cost nothing.
    """
    twins = {other for other, code in codes.items() if other != position and code == codes.get(position)}
    first = next((seen for seen in known if seen.position in twins), None)
    found: list[engine.Observation] = []
    for seen in known:
        found.append(seen)
        if first is not None and (seen.batch, seen.position) == (first.batch, first.position):
            found.append(replace(seen, position=position, build=build, phase=engine.Phase.EARLIER))
    return found


def _failures(item: ProbeRun, position_of_sha: dict[str, int]) -> list[engine.Failure]:
    found = [
        engine.Failure(position=position_of_sha[entry["sha"]], kind=_kind(entry["failure"]["stage"]))
        for entry in item.run.commit_failures
        if entry["sha"] in position_of_sha
    ]
    if item.run.state != RunState.REPORTED and not found:
        kind = _kind(item.run.failure_stage or FailureStage.LEASE)
        found.append(engine.Failure(position=item.probe.position, kind=kind))
    return found


def _kind(stage: str) -> engine.FailureKind:
    if stage in {FailureStage.BUILD, FailureStage.CHECKOUT}:
        return engine.FailureKind.BUILD
    if stage in {FailureStage.DISCOVER, FailureStage.MEASURE}:
        return engine.FailureKind.CRASH
    return engine.FailureKind.INFRASTRUCTURE


def _as_probe(probe: BisectionProbe) -> engine.Probe:
    return engine.Probe(
        position=probe.position,
        partners=tuple(probe.partners),
        order=tuple(probe.measure_order),
        runs=len(probe.measure_order),
        phase=engine.Phase(probe.phase),
    )
