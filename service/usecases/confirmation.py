"""Confirmation: two commits measured interleaved on one machine decide whether a suspicion is true.

Only this can confirm a change point; a suspicion that three interleaved runs cannot prove is withdrawn, not alarmed.
The word of a runner that has lost its trust does not count: another one of its pool is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.contract import RunReason
from service.stats.paired import PairedEffect
from service.store import lineage, points, regressions, static_code, watch
from service.store.points import TouchedSeries
from service.store.tables import ChangePoint, GitCommit, Run
from service.usecases import standing
from service.usecases.aftermath import Aftermath
from service.usecases.dispatch import order_run
from service.usecases.effects import Ruling, Word, paired_effects, rule, rule_identical
from service.usecases.fleet import tell_fleet
from service.usecases.policy import DetectionPolicy
from service.usecases.regress import group

CONFIRM_ATTEMPTS = 3
UNPROVED = f"{CONFIRM_ATTEMPTS} interleaved runs could neither prove nor exclude it"
CONFIRM_PRIORITY = 20
CONFIRM_PROCESSES = 6
MAX_CONTROLS = 2


def order_confirmation(
    session: Session,
    *,
    repository_id: int,
    pool: str,
    good_id: int,
    bad_id: int,
    series: Sequence[TouchedSeries],
    attempt: int = 1,
) -> Aftermath:
    """Order the two commits interleaved in one run: the suspected workloads, and vendor controls beside them.

    Two commits whose earlier run has ended (other series were suspected then, or it was retracted) get one more; while
    one is under way it serves all series.
    """
    keys = {item.workload_key for item in series}
    shapes = {_shape(key) for key in keys}
    controls = sorted(
        regressions.control_keys(session, repository_id=repository_id, problems={item.problem for item in series}),
        key=lambda key: (_shape(key) not in shapes, key),
    )
    good = session.get_one(GitCommit, good_id)
    bad = session.get_one(GitCommit, bad_id)
    rounds = watch.finished_confirmations(session, pool=pool, good_sha=good.sha, bad_id=bad_id)
    if attempt > 1:
        rounds -= 1  # the first attempt of this very round has ended
    ordered = order_run(
        session,
        repository_id=repository_id,
        commit_id=bad.id,
        pool=pool,
        reason=RunReason.CONFIRM,
        priority=CONFIRM_PRIORITY,
        dedupe_key=f"confirm:{repository_id}:{pool}:{good.sha}:{bad.sha}:{rounds}:{attempt}",
        partner_shas=(good.sha,),
        workload_keys=(*sorted(keys), *controls[:MAX_CONTROLS]),
        protocol={"processes": CONFIRM_PROCESSES},
    )
    return Aftermath(runs=[(pool, ordered.id)])


def _shape(workload_key: str) -> str:
    """The axes of a workload key: a control on the suspected axes says the most."""
    return workload_key.partition("[")[2]


def judge_run(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Confirm, take back or re-order the change points that this interleaved run was about.

    Where both commits run the same code no figure confirms anything, an audit's included: it was the machine.
    """
    good = session.scalars(select(GitCommit).filter_by(repository_id=run.repository_id, sha=run.partner_shas[0])).one()
    waiting = regressions.unconfirmed_between(session, pool=run.pool, good_id=good.id, bad_id=run.commit_id)
    if not waiting:
        return Aftermath()
    if not standing.may_judge(session, run=run):
        return _order_again(session, run=run, good_id=good.id, changes=waiting, attempt=_attempt(run))
    raw = points.raw_measurements(session, run_ids=[run.id])
    effects = paired_effects(raw, base_id=good.id, head_id=run.commit_id, confidence=policy.confidence)
    key_of = {measurement.series_id: measurement.workload_key for measurement in raw}
    base_s = {measurement.series_id: measurement.value_s for measurement in raw if measurement.commit_id == good.id}
    control_ids = {measurement.series_id for measurement in raw if measurement.control}
    suspected = {change.series_id for change in waiting}
    same_code = static_code.identical_series(
        session, series_ids={*suspected, *key_of}, commit_ids=(good.id, run.commit_id)
    )
    speaker = lineage.stand_ins(session, series_ids=suspected, among=effects.keys() | (same_code & key_of.keys()))
    controls = [effect for series_id, effect in effects.items() if series_id in control_ids]
    confirmed: list[ChangePoint] = []
    unsure: list[ChangePoint] = []
    moved_by_machine: list[ChangePoint] = []
    for change in waiting:
        measured_as = speaker.get(change.series_id, change.series_id)  # a new environment has a series of its own
        effect = effects.get(measured_as)
        floor = policy.of(key_of.get(measured_as, "")).min_effect
        identical = not same_code.isdisjoint({change.series_id, measured_as})
        word = rule_identical(effect) if identical else rule(change.effect, effect, controls=controls, floor=floor)
        if word.ruling is Ruling.CONFIRMED and effect is not None:
            _take_over(session, change, effect, base_s=base_s.get(change.series_id), run=run, now=now)
            confirmed.append(change)
        elif word.ruling is Ruling.UNSURE:
            unsure.append(change)
        else:
            if word.ruling is Ruling.ENVIRONMENT:
                moved_by_machine.append(change)
            _take_back(change, word, now=now)
    session.flush()
    aftermath = tell_fleet(session, run=run, good=good, changes=moved_by_machine, now=now)
    if confirmed:
        aftermath.add(group(session, run=run, changes=confirmed, good=good, now=now))
    if unsure:
        aftermath.add(_again(session, run=run, good_id=good.id, unsure=unsure, now=now))
    return aftermath


def _take_over(
    session: Session, change: ChangePoint, effect: PairedEffect, *, base_s: float | None, run: Run, now: datetime
) -> None:
    """The paired effect and its levels replace the suspicion's: they were measured on one machine at one time."""
    change.effect, change.effect_low, change.effect_high = effect.effect, effect.low, effect.high
    if base_s is not None:
        change.before_s, change.after_s = base_s, base_s * (1 + effect.effect)
    change.confirmed_run_id, change.confirmed_pairs = run.id, effect.pairs
    change.z, change.p_value = effect.z, effect.p_value
    change.confirmed_at, change.restarts_baseline = now, False
    cost = points.confirmation_cost(session, run=run)
    change.delay_commits, change.delay_device_s = cost.commits, cost.device_s


def _take_back(change: ChangePoint, word: Word, *, now: datetime) -> None:
    """Withdraw a suspicion; one that followed the machine, or moved a control as well, still restarts the baseline."""
    change.withdrawn_at, change.withdrawn_reason = now, word.reason
    change.restarts_baseline = change.restarts_baseline or word.ruling is Ruling.ENVIRONMENT


def _again(session: Session, *, run: Run, good_id: int, unsure: Sequence[ChangePoint], now: datetime) -> Aftermath:
    """Order one more interleaved run, or give up honestly: what stays unproved is withdrawn, not alarmed."""
    if _attempt(run) >= CONFIRM_ATTEMPTS:
        for change in unsure:
            change.withdrawn_at, change.withdrawn_reason = now, UNPROVED
        return Aftermath()
    return _order_again(session, run=run, good_id=good_id, changes=unsure, attempt=_attempt(run) + 1)


def _attempt(run: Run) -> int:
    return int(run.dedupe_key.rsplit(":", 1)[1])


def _order_again(
    session: Session, *, run: Run, good_id: int, changes: Sequence[ChangePoint], attempt: int
) -> Aftermath:
    return order_confirmation(
        session,
        repository_id=run.repository_id,
        pool=run.pool,
        good_id=good_id,
        bad_id=run.commit_id,
        series=points.series_by_id(session, series_ids={change.series_id for change in changes}),
        attempt=attempt,
    )
