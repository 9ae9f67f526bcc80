"""What a regression reaches: how many series, and how much longer a step of a known model takes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus, Tier
from service.domain.mixes import Mix, effect_on_step, load_mixes, problem_key, weigh
from service.domain.severity import Reach, StepImpact
from service.store.tables import Benchmark, ChangePoint, Measurement, Run, Series, Workload


@dataclass(frozen=True, slots=True)
class _Moved:
    benchmark_id: int
    effect: float
    before_s: float
    pool: str


def reach_of(session: Session, *, regression_id: int, repository_id: int) -> Reach:
    """Return how far a regression reaches: its share of the repository's series, and the model steps it is part of."""
    moved: dict[str, _Moved] = {}
    tiers: set[Tier] = set()
    count = 0
    for change, series, workload, benchmark in session.execute(
        select(ChangePoint, Series, Workload, Benchmark)
        .join(Series, Series.id == ChangePoint.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(ChangePoint.regression_id == regression_id, ChangePoint.withdrawn_at.is_(None))
        .order_by(func.abs(ChangePoint.z))
    ):
        count += 1
        tiers.add(Tier(workload.tier))
        if series.unit == "s":
            key = problem_key(benchmark.problem, workload.axes)
            moved[key] = _Moved(benchmark.id, change.effect, change.before_s, series.pool)
    return Reach(
        series=count,
        of_series=series_total(session, repository_id=repository_id),
        steps=tuple(_steps(session, repository_id=repository_id, moved=moved)) if moved else (),
        tier=next((tier for tier in Tier if tier in tiers), Tier.CORE),
    )


def series_total(session: Session, *, repository_id: int) -> int:
    """Return how many series a repository has, vendor controls aside."""
    return (
        session.scalar(
            select(func.count())
            .select_from(Series)
            .join(Workload, Workload.id == Series.workload_id)
            .join(Benchmark, Benchmark.id == Workload.benchmark_id)
            .where(Series.repository_id == repository_id, Benchmark.control.is_(False))
        )
        or 0
    )


def _steps(session: Session, *, repository_id: int, moved: dict[str, _Moved]) -> list[StepImpact]:
    found: list[StepImpact] = []
    for mix in load_mixes():
        touched = {term.problem_key for term in mix.terms} & moved.keys()
        pools = {moved[key].pool for key in touched}
        for pool in sorted(pools):
            impact = _impact(session, repository_id=repository_id, mix=mix, pool=pool, moved=moved)
            if impact is not None:
                found.append(impact)
    return found


def _impact(
    session: Session, *, repository_id: int, mix: Mix, pool: str, moved: dict[str, _Moved]
) -> StepImpact | None:
    """The step before the change, made of each problem's fastest implementation: only that one counts."""
    best = _fastest(session, repository_id=repository_id, pool=pool, mix=mix)
    changed: dict[str, float] = {}
    times = {key: seconds for key, (_, seconds) in best.items()}
    for key, one in moved.items():
        if one.pool == pool and key in best and best[key][0] == one.benchmark_id:
            changed[key] = one.effect
            times[key] = one.before_s
    step = weigh(mix, times)
    effect = effect_on_step(step, changed)
    if not effect:
        return None
    return StepImpact(mix=mix.name, effect=effect, missing=len(step.missing), terms=len(mix.terms))


def _fastest(session: Session, *, repository_id: int, pool: str, mix: Mix) -> dict[str, tuple[int, float]]:
    """Per problem key of a mix, the fastest implementation in a pool by its newest figure."""
    newest = (
        select(Measurement.value_s)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Measurement.series_id == Series.id,
            Measurement.status == MeasurementStatus.OK,
            Measurement.value_s > 0,
            Run.retracted_at.is_(None),
        )
        .order_by(Measurement.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    wanted = {term.problem_key for term in mix.terms}
    problems = {key.partition("[")[0] for key in wanted}
    best: dict[str, tuple[int, float]] = {}
    for benchmark_id, problem, axes, value_s in session.execute(
        select(Benchmark.id, Benchmark.problem, Workload.axes, newest)
        .select_from(Series)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(
            Series.repository_id == repository_id,
            Series.pool == pool,
            Series.unit == "s",
            Benchmark.problem.in_(sorted(problems)),
            Benchmark.device == mix.device,
            Benchmark.control.is_(False),
        )
    ):
        key = problem_key(problem, axes)
        if key in wanted and value_s is not None and (key not in best or value_s < best[key][1]):
            best[key] = (benchmark_id, value_s)
    return best
