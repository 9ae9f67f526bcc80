"""The evidence for one regression, gathered in one snapshot: what the page shows and what the JSON gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from dashboards.figures import SampleSide
from dashboards.measured import Control, Measured, controls_of, measured_commits, proving_runs
from service.domain.code_changes import CodeChange
from service.domain.reproduce import clone_command, compare_command
from service.domain.severity import rate
from service.store import code_changes
from service.store.bisections import Cost, commit_ids, cost_of
from service.store.impact import reach_of
from service.store.pages import evidence as rows
from service.store.pages import fleet
from service.store.pages import regressions as regression_rows
from service.store.pages.evidence import BisectionRow, ProbeRow, RangeCommit, SideRow
from service.store.pages.fleet import AaControl
from service.store.pages.regressions import AuditRow, NotificationRow, RegressionRow, TouchedSeries

MAX_SAMPLES = 4_000


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same on both sides."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Search:
    """A bisection with its batches, and its last belief over `commit_shas` (index 0: no commit of the range)."""

    row: BisectionRow
    probes: tuple[ProbeRow, ...]
    belief: tuple[float, ...]
    culprits: tuple[str, ...]

    @property
    def belief_by_sha(self) -> dict[str, float]:
        """The last belief in each candidate."""
        return dict(zip(self.row.commit_shas[1:], self.belief[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that speaks for or against one regression."""

    row: RegressionRow
    severity_reason: str
    steps: tuple[str, ...]  # what it does to the steps of known models
    touched: tuple[TouchedSeries, ...]
    lead: TouchedSeries | None
    headline: TouchedSeries | None  # whose effect is the regression's: its levels stand beside it
    before: tuple[SideRow, ...]
    after: tuple[SideRow, ...]
    commits: tuple[RangeCommit, ...]  # the range that was searched, good end first; the regression's own without
    measured: Mapping[str, tuple[Measured, ...]]  # by sha
    controls: tuple[Control, ...]
    aa: AaControl | None  # of the runner that confirmed it
    code: tuple[CodeChange, ...]  # exact facts of the leading kernel's machine code, base against head
    searches: tuple[Search, ...]
    notifications: tuple[NotificationRow, ...]
    audit: tuple[AuditRow, ...]
    cost: Cost

    @property
    def reproduce(self) -> str:
        """The command that shows the change on any machine with the repository."""
        return compare_command(
            good_sha=self.row.good_sha,
            bad_sha=self.row.bad_sha,
            culprit_sha=self.row.culprit_sha,
            workload=self.lead.workload if self.lead else None,
        )

    @property
    def clone(self) -> str:
        """The command that makes a clone to run it in."""
        return clone_command(self.row.clone_url)


def gather(session: Session, regression_id: int) -> Evidence | None:
    """Read the bundle of one regression, or None if there is none."""
    row = regression_rows.regression_row(session, regression_id)
    if row is None:
        return None
    touched = regression_rows.touched_series(session, regression_id)
    searches = _searches(session, regression_id)
    leading_ids = {search.row.series_id for search in searches}
    lead = next((one for one in touched if one.series_id in leading_ids), touched[0] if touched else None)
    commits = _commits(session, row, searches)
    before, after = _sides(session, row, lead, commits=commits, searches=searches)
    reach = reach_of(session, regression_id=regression_id, repository_id=row.repository_id)
    probes = [probe for search in searches for probe in search.probes]
    series_id = searches[0].row.series_id if searches else lead.series_id if lead else 0
    return Evidence(
        row=row,
        severity_reason=rate(row.effect, reach).reason,
        steps=tuple(str(step) for step in reach.steps),
        touched=touched,
        lead=lead,
        headline=next((one for one in touched if one.effect == row.effect), lead),
        before=before,
        after=after,
        commits=commits,
        measured=measured_commits(session, series_id=series_id, probes=probes, commits=commits),
        controls=_controls(session, row, lead, searches),
        aa=fleet.aa_control(session, run_id=lead.confirmed_run_id, family=lead.family)
        if lead and lead.confirmed_run_id
        else None,
        code=_code(session, row, lead, before=before, after=after),
        searches=searches,
        notifications=regression_rows.notifications(session, regression_id=regression_id),
        audit=regression_rows.audit_of(
            session, [("regression", regression_id), *(("bisection", search.row.bisection_id) for search in searches)]
        ),
        cost=cost_of(session, regression_id=regression_id),
    )


def _code(
    session: Session,
    row: RegressionRow,
    lead: TouchedSeries | None,
    *,
    before: Sequence[SideRow],
    after: Sequence[SideRow],
) -> tuple[CodeChange, ...]:
    """The static facts of both sides; where one was not surveyed, the findings at the commits of the range."""
    if lead is None or row.good_position is None or row.bad_position is None:
        return ()
    about: dict[str, Any] = {"repository_id": row.repository_id, "benchmark": lead.benchmark}
    found: tuple[CodeChange, ...] = ()
    if before and after:
        base_id, head_id = before[0].commit_id, after[0].commit_id
        found = code_changes.between(session, **about, base_id=base_id, head_id=head_id)
    return found or code_changes.of_range(
        session, **about, good_position=row.good_position, bad_position=row.bad_position
    )


def _commits(session: Session, row: RegressionRow, searches: Sequence[Search]) -> tuple[RangeCommit, ...]:
    """The range that was searched last: attribution narrows the regression, not what was looked at."""
    if row.good_position is None or row.bad_position is None:
        return ()
    ends = [row.good_position, row.bad_position]
    if searches:
        shas = searches[0].row.commit_shas
        ends += rows.positions_of(session, repository_id=row.repository_id, shas=[shas[0], shas[-1]])
    return rows.range_commits(session, repository_id=row.repository_id, good_position=min(ends), bad_position=max(ends))


def _ends(
    session: Session, row: RegressionRow, lead: TouchedSeries, searches: Sequence[Search]
) -> tuple[int | None, int | None]:
    """The commits between which the change was proved, by id: attribution moves a step, the ends of a search stay."""
    if not searches:
        return lead.previous_commit_id, lead.commit_id
    shas = searches[0].row.commit_shas
    ids = commit_ids(session, repository_id=row.repository_id, shas=[shas[0], shas[-1]])
    return ids.get(shas[0]), ids.get(shas[-1])


def _controls(
    session: Session, row: RegressionRow, lead: TouchedSeries | None, searches: Sequence[Search]
) -> tuple[Control, ...]:
    """The vendor library at both ends of the range, where the run that proved the change measured it too."""
    good_id, bad_id = _ends(session, row, lead, searches) if lead else (None, None)
    if lead is None or good_id is None or bad_id is None:
        return ()
    run_ids = proving_runs(lead, searches[0].probes if searches else ())
    return controls_of(session, lead, run_ids=run_ids, good_id=good_id, bad_id=bad_id)


def _sides(
    session: Session,
    row: RegressionRow,
    lead: TouchedSeries | None,
    *,
    commits: Sequence[RangeCommit],
    searches: Sequence[Search],
) -> tuple[tuple[SideRow, ...], tuple[SideRow, ...]]:
    """Raw samples of both sides: of the culprit and its parent where both were measured, else of the wider ends.

    A culprit may never have been measured itself: a neighbour with the same suite stood for it. The ends of the search
    always were, interleaved, by the run that confirmed the change.
    """
    if lead is None:
        return (), ()
    index = next((i for i, commit in enumerate(commits) if commit.sha == row.culprit_sha), 0)
    if index:
        parent, culprit = commits[index - 1], commits[index]
        before = rows.side(session, series_id=lead.series_id, commit_id=parent.commit_id)
        after = rows.side(session, series_id=lead.series_id, commit_id=culprit.commit_id)
        if before and after:
            return _interleaved(before, after)
    before = rows.side(session, series_id=lead.series_id, commit_id=lead.previous_commit_id)
    after = rows.side(session, series_id=lead.series_id, commit_id=lead.commit_id)
    if searches and not (before and after):
        before, after = (
            rows.side(session, series_id=lead.series_id, commit_id=commit_id) if commit_id is not None else ()
            for commit_id in _ends(session, row, lead, searches)
        )
    return _interleaved(before, after)


def _interleaved(
    before: tuple[SideRow, ...], after: tuple[SideRow, ...]
) -> tuple[tuple[SideRow, ...], tuple[SideRow, ...]]:
    """Keep the runs that measured both sides, if there are any: only they had the same machine at the same time."""
    both = {side.run_id for side in before} & {side.run_id for side in after}
    if not both:
        return before, after
    return tuple(side for side in before if side.run_id in both), tuple(side for side in after if side.run_id in both)


def _searches(session: Session, regression_id: int) -> tuple[Search, ...]:
    found = rows.bisections_of(session, regression_id)
    probes = rows.probes_of(session, [row.bisection_id for row in found]) if found else ()
    return tuple(
        _search(row, tuple(probe for probe in probes if probe.bisection_id == row.bisection_id)) for row in found
    )


def _search(row: BisectionRow, probes: tuple[ProbeRow, ...]) -> Search:
    outcome = row.outcome or {}
    beliefs = [probe.posterior for probe in probes if probe.posterior]
    belief = tuple(beliefs[-1]) if beliefs else ()
    named = [position for position in outcome.get("positions", []) if 0 < position < len(row.commit_shas)]
    culprits = tuple(row.commit_shas[position] for position in named)
    return Search(row=row, probes=probes, belief=belief, culprits=culprits)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The facts that differ, by name; a fact that one side lacks is shown as missing."""
    missing = "missing"
    return [
        Difference(name=name, before=str(before.get(name, missing)), after=str(after.get(name, missing)))
        for name in sorted({*before, *after})
        if before.get(name, missing) != after.get(name, missing)
    ]


def environment_differences(before: Sequence[SideRow], after: Sequence[SideRow]) -> list[Difference]:
    """How the newest measurements' machines differ; empty when they are the same."""
    if not before or not after:
        return []
    return differences(before[0].facts or {}, after[0].facts or {})


def code_differences(before: Sequence[SideRow], after: Sequence[SideRow]) -> list[Difference]:
    """How machine code, result and static facts differ."""
    if not before or not after:
        return []
    sides = [
        {
            "machine code": (side.code_hash or "unknown")[:16],
            "result": (side.output_hash or "unknown")[:16],
            **side.static_facts,
        }
        for side in (before[0], after[0])
    ]
    return differences(*sides)


def same_code(before: Sequence[SideRow], after: Sequence[SideRow]) -> bool:
    """Whether both sides ran the same machine code on the same recipe."""
    if not before or not after or not before[0].code_hash:
        return False
    codes = [(side.code_hash, side.static_facts.get("recipe_hash")) for side in (before[0], after[0])]
    return codes[0] == codes[1]


def result_words(before: Sequence[SideRow], after: Sequence[SideRow]) -> str:
    """Say whether both sides computed the same bits; each side's result has agreed with the reference, or it has none.

    Empty where a side has no hash. A changed order of summation changes bits without being wrong.
    """
    hashes = [{side.output_hash for side in sides if side.output_hash} for sides in (before, after)]
    if not all(hashes):
        return ""
    if hashes[0] == hashes[1]:
        return f"the same bits on both sides, {', '.join(sorted(one[:12] for one in hashes[0]))}"
    old, new = (", ".join(sorted(one[:12] for one in side)) for side in hashes)
    return f"other bits ({old} → {new}), both within the tolerance of the reference"


def canary_shift(before: Sequence[SideRow], after: Sequence[SideRow]) -> float | None:
    """How much the canary moved between the sides, relative; the machine's part of the change."""
    middles = [_canary_s(side) for side in (before, after)]
    if middles[0] is None or middles[1] is None:
        return None
    return middles[1] / middles[0] - 1


def _canary_s(sides: Sequence[SideRow]) -> float | None:
    figures = [
        canary
        for side in sides
        for canary in (side.block_canary_cpu_s if side.clock == "cpu" else side.block_canary_wall_s)
        if canary > 0
    ]
    return median(figures) if figures else None


def sample_side(name: str, sides: Sequence[SideRow]) -> SampleSide:
    """Every raw sample of one side on the figure's clock; each process of each run has its own lane."""
    samples: list[float] = []
    lanes: list[int] = []
    numbered: dict[tuple[int, int], int] = {}
    for side in sides:
        raw = side.cpu_s if side.clock == "cpu" else side.wall_s
        start = 0
        for size, process in zip(side.block_size, side.block_process, strict=False):
            lane = numbered.setdefault((side.measurement_id, process), len(numbered))
            block = raw[start : start + size]
            samples += block
            lanes += [lane] * len(block)
            start += size
    return SampleSide(
        name=name,
        sha=sides[0].sha if sides else "",
        samples_s=tuple(samples[:MAX_SAMPLES]),
        processes=tuple(lanes[:MAX_SAMPLES]),
    )
