"""Store a runner's report: once, whole, or not at all.

Environment, benchmarks, workloads, series, measurements and the run's new state are one transaction under the lock of
the run's row. That lock is what makes eight copies of a report one: the first writes, the others find it written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from statistics import median, quantiles
from typing import Any

from sqlalchemy.orm import Session

from service.contract import (
    FailureKind,
    MeasurementReport,
    MeasurementStatus,
    RunFailure,
    RunReason,
    RunReport,
    StaticReport,
)
from service.domain import stability
from service.domain.reports import check_report, clean_text
from service.domain.states import RunState, check_run_move
from service.store import commits, health, lineage, runs, series, static_code
from service.store.measurements import copy_measurements, past_process_sds
from service.store.series import BenchmarkKey, SeriesKey
from service.store.tables import GitCommit, Run, Runner
from service.usecases import standing
from service.usecases.aftermath import Aftermath


class Receipt(StrEnum):
    """What became of a report."""

    STORED = "stored"
    RETRYING = "retrying"  # a transient failure: written down, and the run is queued again
    ALREADY = "already_stored"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The receipt, the pool to ring for when the run waits again, and what the runner's standing asks for."""

    receipt: Receipt
    pool: str
    aftermath: Aftermath = field(default_factory=Aftermath)


class UnknownRunError(LookupError):
    """There is no such run."""


def store_report(session: Session, report: RunReport, *, runner: Runner, now: datetime, max_attempts: int) -> Outcome:
    """Store a report, or say why not; ReportRefusedError when its contents cannot be believed.

    1. Lock the run; a report of another attempt is superseded, one that is there already changes nothing.
    2. Check every value.
    3. Write the rows that the measurements hang on, then the measurements, then the run.
    4. Keep what the report shows of its runner, and judge the runner (`standing`).
    """
    runner = health.lock_runner(session, runner_id=runner.id) or runner
    run = runs.lock(session, run_id=report.run_id)
    if run is None:
        raise UnknownRunError(f"there is no run {report.run_id}")
    over = _receipt_unwritten(run, report, runner)
    if over is not None:
        return Outcome(over, run.pool)
    subject = session.get_one(GitCommit, run.commit_id)
    commit_of = commits.ids_by_sha(session, repository_id=run.repository_id, shas=[subject.sha, *run.partner_shas])
    check_report(report, shas=frozenset(commit_of), reason=RunReason(run.reason))
    aftermath = standing.note_job(session, runner=runner, run=run, report=report, now=now)
    if _is_worth_retrying(report) and run.attempt < max_attempts:
        _retry(run, report, now=now, max_attempts=max_attempts)
        return Outcome(Receipt.RETRYING, run.pool, aftermath)
    _write_environment(session, run, report)
    _write_measurements(session, run, report, commit_of=commit_of)
    _write_static(session, run, report, commit_of=commit_of)
    _finish(run, report, subject_sha=subject.sha, now=now)
    session.flush()
    return Outcome(Receipt.STORED, run.pool, aftermath)


def _receipt_unwritten(run: Run, report: RunReport, runner: Runner) -> Receipt | None:
    """ALREADY or SUPERSEDED if this report must not be written, else None.

    A run that was queued again after its lease ran out keeps the lost attempt's token until somebody claims it, so a
    late report of that attempt is welcome. One that failed because its leases ran out is over.
    """
    same = (
        run.attempt == report.attempt
        and run.lease_token is not None
        and run.lease_token == report.lease_token
        and run.runner_id == runner.id
    )
    if not same:
        return Receipt.SUPERSEDED
    if run.state in {RunState.LEASED, RunState.MEASURING, RunState.QUEUED}:
        return None
    handed_in = run.state == RunState.REPORTED or run.harness_epoch is not None
    return Receipt.ALREADY if handed_in else Receipt.SUPERSEDED


def _is_worth_retrying(report: RunReport) -> bool:
    return report.failure is not None and report.failure.kind is FailureKind.TRANSIENT and not report.measurements


def _retry(run: Run, report: RunReport, *, now: datetime, max_attempts: int) -> None:
    assert report.failure is not None
    runs.give_back(
        run,
        now=now,
        max_attempts=max_attempts,
        kind=report.failure.kind,
        stage=report.failure.stage,
        reason=clean_text(report.failure.reason) or "",
    )
    run.failure_log = clean_text(report.failure.log_tail)
    run.lease_token = None  # this attempt has had its say
    run.device_s = (run.device_s or 0.0) + report.device_s


def _write_environment(session: Session, run: Run, report: RunReport) -> None:
    if report.environment is not None:
        run.environment_id = series.environment_id(
            session,
            fingerprint=report.environment.fingerprint,
            comparable_key=report.environment.comparable_key,
            device=report.environment.device,
            facts=report.environment.facts,
        )


def _write_measurements(session: Session, run: Run, report: RunReport, *, commit_of: Mapping[str, int]) -> None:
    if not report.measurements:
        return
    assert report.environment is not None
    benchmarks = series.benchmark_ids(
        session,
        repository_id=run.repository_id,
        wanted={_benchmark_key(item): _about(item) for item in report.measurements},
    )
    workloads = series.workload_ids(
        session,
        wanted={
            (benchmarks[_benchmark_key(item)], item.workload): {
                "axes": dict(item.axes),
                "flops": float(item.flops),
                "bytes": float(item.bytes),
                "tier": item.tier.value,
            }
            for item in report.measurements
        },
    )
    keys = [
        SeriesKey(
            workload_id=workloads[benchmarks[_benchmark_key(item)], item.workload],
            metric=item.metric,
            direction=item.direction,
            unit=item.unit,
            pool=run.pool,
            comparable_key=report.environment.comparable_key,
            harness_epoch=report.harness_epoch,
        )
        for item in report.measurements
    ]
    ids = series.series_ids(session, repository_id=run.repository_id, wanted=set(keys))
    past = past_process_sds(session, series_ids=set(ids.values()), limit=stability.PAST_MEASUREMENTS)
    measured_at = _moment(report.finished_at)
    rows = (
        {
            "run_id": run.id,
            "series_id": ids[key],
            "commit_id": commit_of[item.sha],
            "measured_at": measured_at,
            **_figures(item, past=past.get(ids[key], ())),
            **_samples(item),
        }
        for key, item in zip(keys, report.measurements, strict=True)
    )
    copy_measurements(session, rows)
    _join_lineage(session, run, ids.values(), measured_at=measured_at)


def _join_lineage(session: Session, run: Run, series_ids: Collection[int], *, measured_at: datetime) -> None:
    """Link series that had no history before to their kin, and note which of the kin lives now."""
    unlinked = lineage.without_history(session, series_ids=series_ids)
    if run.reason in lineage.LIFE_REASONS:
        lineage.note_history(session, series_ids=series_ids, measured_at=measured_at)
    if unlinked:
        lineage.lock(session, repository_id=run.repository_id)
        lineage.relink(session, series_ids=unlinked)


def _write_static(session: Session, run: Run, report: RunReport, *, commit_of: Mapping[str, int]) -> None:
    """Write the facts of machine code; what another run has brought already is equal and stays."""
    if not report.static:
        return
    benchmarks = series.benchmark_ids(
        session, repository_id=run.repository_id, wanted={_benchmark_key(item): _about(item) for item in report.static}
    )
    rows = [
        {
            "commit_id": commit_of[item.sha],
            "benchmark_id": benchmarks[_benchmark_key(item)],
            "run_id": run.id,
            "target": item.target,
            "toolchain": item.toolchain,
            "code_hash": item.code_hash,
            "recipe_hash": item.recipe_hash,
            "facts": dict(item.facts),
            "error": clean_text(item.error),
        }
        for item in report.static
    ]
    static_code.write(session, rows)


def _about(item: MeasurementReport | StaticReport) -> dict[str, Any]:
    return {"family": item.family, "problem": item.problem, "device": item.device, "control": item.control}


def _benchmark_key(item: MeasurementReport | StaticReport) -> BenchmarkKey:
    return BenchmarkKey(item.benchmark, item.version)


def _figures(item: MeasurementReport, *, past: Sequence[float]) -> dict[str, Any]:
    times = [block.cpu_s if item.clock == "cpu" else block.wall_s for block in item.blocks]
    samples = list(chain.from_iterable(times))
    spread = stability.process_sd(item.blocks, clock=item.clock) if item.status is MeasurementStatus.OK else None
    unstable = (stability.UNSTABLE,) if stability.is_unstable(spread, past) else ()
    return {
        "status": item.status.value,
        "error": clean_text(item.error),
        "n": len(samples),
        "value_s": item.value_s,
        "half_width_s": item.half_width_s,
        "median_s": float(median(samples)) if samples else None,
        "spread": relative_spread(samples),
        "process_sd": spread,
        "clock": item.clock,
        "flags": list(dict.fromkeys((*item.flags, *unstable))),
        "code_hash": item.code_hash,
        "output_hash": item.output_hash,
        "static_facts": dict(item.static),
        "identical_to": item.identical_to,
    }


def _samples(item: MeasurementReport) -> dict[str, Any]:
    return {
        "wall_s": list(chain.from_iterable(block.wall_s for block in item.blocks)),
        "cpu_s": list(chain.from_iterable(block.cpu_s for block in item.blocks)),
        "block_size": [len(block.wall_s) for block in item.blocks],
        "block_process": [block.process for block in item.blocks],
        "block_order": [block.order for block in item.blocks],
        "block_canary_wall_s": [block.canary_wall_s for block in item.blocks],
        "block_canary_cpu_s": [block.canary_cpu_s for block in item.blocks],
        "block_flags": [list(block.flags) for block in item.blocks],
    }


def relative_spread(samples: Sequence[float]) -> float | None:
    """Inter-quartile range over median: how far apart single launches lie; None below four samples."""
    if len(samples) < 4:
        return None
    low, middle, high = quantiles(samples, n=4)
    return (high - low) / middle if middle > 0 else None


def _finish(run: Run, report: RunReport, *, subject_sha: str, now: datetime) -> None:
    """Write the run's end. Without a single measurement it has failed, for the reason nearest to its own commit."""
    failure = report.failure or _failure_of(report, subject_sha)
    done = bool(report.measurements) or (run.reason == RunReason.CANARY and failure is None)
    after = RunState.REPORTED if done else RunState.FAILED
    if run.state == RunState.QUEUED:  # its lease had run out; the late report takes the run back first
        check_run_move(RunState.QUEUED, RunState.LEASED)
        run.state = RunState.LEASED
    check_run_move(RunState(run.state), after)
    run.state = after
    run.lease_until = None
    run.started_at = _moment(report.started_at)
    run.finished_at = now
    run.device_s = (run.device_s or 0.0) + report.device_s
    run.harness_epoch = report.harness_epoch
    run.canary_wall_s, run.canary_cpu_s = report.canary_wall_s, report.canary_cpu_s
    run.flags = list(report.flags)
    run.static_missing = clean_text(report.static_missing)
    run.commit_failures = [_as_json(entry.sha, entry.failure) for entry in report.commit_failures]
    run.failure_stage = failure.stage if failure else None
    run.failure_kind = failure.kind if failure else None
    run.failure_reason = clean_text(failure.reason) if failure else None
    run.failure_log = clean_text(failure.log_tail) if failure else None


def _failure_of(report: RunReport, subject_sha: str) -> RunFailure | None:
    if report.measurements:
        return None
    own: Iterator[RunFailure] = (entry.failure for entry in report.commit_failures if entry.sha == subject_sha)
    return next(own, report.commit_failures[0].failure if report.commit_failures else None)


def _as_json(sha: str, failure: RunFailure) -> dict[str, Any]:
    facts = asdict(failure) | {"reason": clean_text(failure.reason), "log_tail": clean_text(failure.log_tail)}
    return {"sha": sha, "failure": facts}


def _moment(posix_s: float) -> datetime:
    return datetime.fromtimestamp(math.floor(posix_s * 1e6) / 1e6, tz=UTC)
