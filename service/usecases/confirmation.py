"""Confirmation: two commits measured interleaved on one machine decide whether a suspicion is true.

Only this can confirm a change point; a suspicion that three interleaved runs cannot prove is withdrawn, not alarmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus, RunReason
from service.stats.paired import PairedEffect, paired_effect
from service.store import points, regressions
from service.store.points import RawMeasurement, TouchedSeries
from service.store.tables import ChangePoint, GitCommit, Run
from service.usecases.aftermath import Aftermath
from service.usecases.bisect_log import blocks_on, shared_clocks
from service.usecases.dispatch import order_run
from service.usecases.policy import DetectionPolicy
from service.usecases.regress import group

CONFIRM_ATTEMPTS = 3
CONFIRM_PRIORITY = 20
CONFIRM_PROCESSES = 6
MAX_CONTROLS = 2


def order_confirmation(
    session: Session, *, run: Run, good_id: int, bad_id: int, series: Sequence[TouchedSeries], attempt: int = 1
) -> Aftermath:
    """Order the two commits interleaved in one run: the suspected workloads, and vendor controls beside them."""
    keys = {item.workload_key for item in series}
    controls = regressions.control_keys(
        session, repository_id=run.repository_id, problems={item.problem for item in series}
    )
    good = session.get_one(GitCommit, good_id)
    bad = session.get_one(GitCommit, bad_id)
    ordered = order_run(
        session,
        repository_id=run.repository_id,
        commit_id=bad.id,
        pool=run.pool,
        reason=RunReason.CONFIRM,
        priority=CONFIRM_PRIORITY,
        dedupe_key=f"confirm:{run.repository_id}:{run.pool}:{good.sha}:{bad.sha}:{attempt}",
        partner_shas=(good.sha,),
        workload_keys=(*sorted(keys), *controls[:MAX_CONTROLS]),
        protocol={"processes": CONFIRM_PROCESSES},
    )
    return Aftermath(runs=[(run.pool, ordered.id)])


def judge_run(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Confirm, withdraw or re-order the change points that this interleaved run was about."""
    good = session.scalars(select(GitCommit).filter_by(repository_id=run.repository_id, sha=run.partner_shas[0])).one()
    waiting = regressions.unconfirmed_between(session, pool=run.pool, good_id=good.id, bad_id=run.commit_id)
    if not waiting:
        return Aftermath()
    raw = points.raw_measurements(session, run_ids=[run.id])
    effects = paired_effects(raw, base_id=good.id, head_id=run.commit_id, confidence=policy.confidence)
    moved_controls = [
        effect for series_id, effect in effects.items() if _is_control(raw, series_id) and effect.excludes_zero
    ]
    confirmed: list[ChangePoint] = []
    unsure: list[ChangePoint] = []
    for change in waiting:
        effect = effects.get(change.series_id)
        if effect is None:
            unsure.append(change)
        elif agrees(change.effect, effect, floor=policy.min_effect):
            if any(same_move(effect, control) for control in moved_controls):
                change.withdrawn_at = now  # the vendor control moved with it: the machine, not the commit
                continue
            _take_over(change, effect)
            change.confirmed_at = now
            confirmed.append(change)
        elif (effect.low > -policy.min_effect and effect.high < policy.min_effect) or effect.effect * change.effect < 0:
            change.withdrawn_at = now
        else:
            unsure.append(change)
    aftermath = Aftermath()
    if confirmed:
        aftermath.add(group(session, run=run, changes=confirmed, good=good, now=now))
    if unsure:
        aftermath.add(_again(session, run=run, good_id=good.id, unsure=unsure, now=now))
    return aftermath


def agrees(suspected: float, measured: PairedEffect, *, floor: float) -> bool:
    """Whether a paired effect proves a suspicion: same sign, certain, and at least the floor."""
    return measured.excludes_zero and measured.effect * suspected > 0 and abs(measured.effect) >= floor


def same_move(effect: PairedEffect, control: PairedEffect) -> bool:
    """Whether a vendor control moved the same way by at least half as much."""
    return effect.effect * control.effect > 0 and abs(control.effect) >= 0.5 * abs(effect.effect)


def paired_effects(
    raw: Sequence[RawMeasurement], *, base_id: int, head_id: int, confidence: float
) -> dict[int, PairedEffect]:
    """Return per series the effect of head over base in one interleaved run, on the stricter clock of the two."""
    clocks = shared_clocks(raw)
    sides: dict[int, dict[int, RawMeasurement]] = {}
    for measurement in raw:
        if measurement.status == MeasurementStatus.OK:
            sides.setdefault(measurement.series_id, {})[measurement.commit_id] = measurement
    effects: dict[int, PairedEffect] = {}
    for series_id, by_commit in sides.items():
        if base_id not in by_commit or head_id not in by_commit:
            continue
        base, head = by_commit[base_id], by_commit[head_id]
        clock = clocks[base.run_id, series_id]
        effect = paired_effect(blocks_on(base, clock), blocks_on(head, clock), confidence=confidence)
        if effect is not None:
            effects[series_id] = effect
    return effects


def _is_control(raw: Sequence[RawMeasurement], series_id: int) -> bool:
    return any(measurement.control for measurement in raw if measurement.series_id == series_id)


def _take_over(change: ChangePoint, effect: PairedEffect) -> None:
    """The paired effect replaces the suspicion's: it was measured on one machine at one time."""
    change.effect, change.effect_low, change.effect_high = effect.effect, effect.low, effect.high
    change.z, change.p_value = effect.z, effect.p_value


def _again(session: Session, *, run: Run, good_id: int, unsure: Sequence[ChangePoint], now: datetime) -> Aftermath:
    """Order one more interleaved run, or give up honestly: what stays unproved is withdrawn, not alarmed."""
    attempt = int(run.dedupe_key.rsplit(":", 1)[1])
    if attempt >= CONFIRM_ATTEMPTS:
        for change in unsure:
            change.withdrawn_at = now
        return Aftermath()
    ids = {change.series_id for change in unsure}
    series = points.series_by_id(session, series_ids=ids)
    return order_confirmation(
        session, run=run, good_id=good_id, bad_id=run.commit_id, series=series, attempt=attempt + 1
    )
