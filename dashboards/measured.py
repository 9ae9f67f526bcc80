"""What interleaved runs measured: each commit of a searched range against its good end, and the vendor's library.

Only pairs of processes of one run are compared, so a machine that was faster on another day does not enter. numpy and
scipy are loaded with the first page that needs them: many sites' pages never do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.store.pages import evidence as rows
from service.store.pages import series as series_rows
from service.store.pages.evidence import ControlRow, ProbeRow, RangeCommit
from service.store.pages.regressions import TouchedSeries
from service.store.pages.series import SeriesHead
from service.store.points import RawMeasurement, raw_measurements

CONFIDENCE = 0.99  # as the proof of a change


@dataclass(frozen=True, slots=True)
class Measured:
    """A commit's time relative to another's (`effect` = ratio - 1), over `pairs` pairs of processes."""

    against_sha: str
    effect: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Control:
    """A vendor-library series beside the regression.

    `effect` is relative, None where a side was not measured; without an interval it compares medians of unlike runs.
    """

    series_id: int
    workload: str
    same_shape: bool
    effect: float | None
    low: float | None
    high: float | None
    pairs: int
    runs_before: int
    runs_after: int


def measured_commits(
    session: Session, *, series_id: int, probes: Sequence[ProbeRow], commits: Sequence[RangeCommit]
) -> dict[str, tuple[Measured, ...]]:
    """Return by sha how each probed commit compares with the good end and with the commit just before it.

    Where neither was in its runs, with the earliest commit that was.
    """
    from service.usecases.effects import pooled_effect

    run_ids = {probe.run_id for probe in probes if probe.run_id is not None}
    raw = raw_measurements(session, run_ids=run_ids, series_ids=[series_id])
    beside = _beside(raw)
    found: dict[str, tuple[Measured, ...]] = {}
    for index, commit in enumerate(commits):
        known = [
            (one, pair)
            for one in _partners(index, commits, beside.get(commit.commit_id, frozenset()))
            if (pair := pooled_effect(raw, base_id=one.commit_id, head_id=commit.commit_id, confidence=CONFIDENCE))
        ]
        if known:
            found[commit.sha] = tuple(
                Measured(against_sha=one.sha, effect=pair.effect, low=pair.low, high=pair.high, pairs=pair.pairs)
                for one, pair in known
            )
    return found


def _beside(raw: Sequence[RawMeasurement]) -> dict[int, frozenset[int]]:
    """By commit, the commits that some run measured together with it."""
    by_run: dict[int, set[int]] = {}
    for measurement in raw:
        by_run.setdefault(measurement.run_id, set()).add(measurement.commit_id)
    found: dict[int, frozenset[int]] = {}
    for together in by_run.values():
        for commit_id in together:
            found[commit_id] = found.get(commit_id, frozenset()) | together - {commit_id}
    return found


def _partners(index: int, commits: Sequence[RangeCommit], beside: Collection[int]) -> list[RangeCommit]:
    earlier = [commit for commit in commits[:index] if commit.commit_id in beside]
    ends = [commit for commit in earlier if commit is commits[0] or commit is commits[index - 1]]
    return ends or earlier[:1]


def controls_of(
    session: Session, lead: TouchedSeries, *, run_ids: Collection[int], good_id: int, bad_id: int
) -> tuple[Control, ...]:
    """Return the vendor library's series that were measured at both ends: the regression's own shape first.

    `run_ids` are the interleaved runs of these two commits; without them medians of separate runs are compared.
    """
    from service.usecases.effects import pooled_effect

    head = series_rows.series_head(session, lead.series_id)
    beside = {control.series_id: control for control in series_rows.controls_beside(session, head)} if head else {}
    if not beside:
        return ()
    apart = rows.control_sides(session, series_ids=beside, good_commit_id=good_id, bad_commit_id=bad_id)
    raw = raw_measurements(session, run_ids=run_ids, series_ids=beside)
    found = []
    for one in apart:
        mine = [measurement for measurement in raw if measurement.series_id == one.series_id]
        paired = pooled_effect(mine, base_id=good_id, head_id=bad_id, confidence=CONFIDENCE)
        found.append(
            Control(
                series_id=one.series_id,
                workload=beside[one.series_id].workload,
                same_shape=_same_shape(beside[one.series_id], head),
                effect=paired.effect if paired else _ratio(one),
                low=paired.low if paired else None,
                high=paired.high if paired else None,
                pairs=paired.pairs if paired else 0,
                runs_before=one.runs_before,
                runs_after=one.runs_after,
            )
        )
    return tuple(sorted(found, key=lambda one: (not one.same_shape, one.low is None, one.effect is None, one.workload)))


def proving_runs(lead: TouchedSeries, probes: Sequence[ProbeRow]) -> set[int]:
    """The interleaved runs that held both ends: the one that proved the change, and those that a search began with."""
    found = {probe.run_id for probe in probes if probe.run_id and probe.run_reason == RunReason.CONFIRM}
    return found | ({lead.confirmed_run_id} if lead.confirmed_run_id else set())


def _same_shape(control: SeriesHead, head: SeriesHead | None) -> bool:
    if head is None or (control.problem, control.metric) != (head.problem, head.metric):
        return False
    return _axes(control.axes) == _axes(head.axes)


def _axes(axes: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in axes.items()}


def _ratio(control: ControlRow) -> float | None:
    if not control.before_s or control.after_s is None:
        return None
    return control.after_s / control.before_s - 1
