"""Compare two versions: static identity first, then interleaved pairs with looks, then one verdict per workload."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runners.device.base import Device
from runners.errors import ChildError
from runners.measure.houses import NotMeasurableError
from runners.measure.identical import identical
from runners.measure.ledger import Entry
from runners.measure.pairs import LOOKS, PAIRS_MIN, Look, Verdict, judge
from runners.measure.protocol import Flag
from runners.measure.session import Progress, SessionResult, measure_commits
from runners.measure.team import AnySubject, CodeReader, Spawn, SubjectBrokenError, Team
from service.contract import CommitFailure, MeasurementReport, MeasurementStatus, ProtocolParams

AUDIT_SHARE = 0.1  # of workloads with identical code are timed all the same


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on one workload, with everything it rests on."""

    workload: str
    verdict: Verdict
    reason: str
    look: Look | None = None
    audited: bool = False  # identical code that was timed to check the rule
    base: MeasurementReport | None = None
    head: MeasurementReport | None = None
    static_base: dict[str, float | str] = field(default_factory=dict)
    static_head: dict[str, float | str] = field(default_factory=dict)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the pairs and of both sides."""
        found: set[str] = set(self.look.flags if self.look else ())
        for side in (self.base, self.head):
            found.update(side.flags if side else ())
        found.discard(Flag.SHORT_OF_TIME)
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """All verdicts of a comparison, and what it cost."""

    comparisons: tuple[Comparison, ...]
    failures: tuple[CommitFailure, ...]
    pairs: int
    device_s: float

    @property
    def exit_code(self) -> int:
        """0 nothing regressed and everything was compared; 1 regression; 2 inconclusive or missing; 3 error."""
        verdicts = {c.verdict for c in self.comparisons}
        if verdicts & {Verdict.REGRESSION, Verdict.WRONG_RESULT}:
            return 1
        if self.failures:
            return 3
        if not verdicts or verdicts & {Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE}:
            return 2
        return 0


@dataclass(slots=True)
class PairStopping:
    """Stop a workload at the planned look that settles it; between looks nobody peeks."""

    floor: float
    family: int
    settled: set[str] = field(default_factory=set)

    @property
    def processes_min(self) -> int:
        """The first look needs this many pairs."""
        return PAIRS_MIN

    def finished(self, entries: Sequence[Entry], *, processes: int) -> bool:
        """Whether this workload had its verdict at a look up to now."""
        key = entries[0].key
        if key in self.settled:
            return True
        if len(entries) < 2:  # the other side failed: no comparison is left to make
            return True
        if processes in {pairs for pairs, _ in LOOKS}:
            base, head = entries
            seen = judge(
                base.blocks, head.blocks, threads=base.threads, floor=self.floor, family=self.family, last=False
            )
            if seen is not None and seen.verdict is not None:
                self.settled.add(key)
        return key in self.settled


@dataclass(slots=True)
class _Side:
    described: dict[str, dict[str, object]]
    static: dict[str, dict[str, float | str]]
    unbuilt: dict[str, str]


def compare(
    base: AnySubject,
    head: AnySubject,
    *,
    spawn: Spawn,
    device: Device,
    params: ProtocolParams,
    floor: float,
    wanted: Callable[[str], bool] = lambda _key: True,
    tier: str = "core",
    audit_share: float = AUDIT_SHARE,
    progress: Progress = lambda _stage, _done, _total: True,
    code: CodeReader | None = None,
    rng: random.Random,
    clock: Callable[[], float],
) -> ComparisonResult:
    """Compare every wanted workload of two subjects; identical code is settled without timing, but for an audit."""
    sides: list[_Side] = []
    for subject in (base, head):
        try:
            team = Team([subject], process=0, spawn=spawn, device=device, params=params, clock=clock, code=code)
            sides.append(_inspect(team, subject.sha, wanted=wanted, tier=tier))
        except SubjectBrokenError as broken:
            return ComparisonResult((), (CommitFailure(broken.sha, broken.failure),), 0, 0.0)
    settled, to_time, audited = _settle_without_timing(*sides, audit_share=audit_share, rng=rng)
    if not to_time:
        return ComparisonResult(tuple(settled), (), 0, 0.0)
    stopping = PairStopping(floor=floor, family=len(to_time))
    result = measure_commits(
        (base, head),
        spawn=spawn,
        device=device,
        params=params,
        workloads=to_time,
        progress=progress,
        code=code,
        rng=rng,
        clock=clock,
        stopping=stopping,
    )
    timed = [
        _conclude(key, result, shas=(base.sha, head.sha), stopping=stopping, audited=key in audited, sides=sides)
        for key in to_time
    ]
    comparisons = tuple(sorted([*settled, *timed], key=lambda c: c.workload))
    return ComparisonResult(comparisons, result.commit_failures, result.processes, result.device_s)


def _inspect(team: Team, sha: str, *, wanted: Callable[[str], bool], tier: str) -> _Side:
    """Build one subject and read its machine code, in a process of its own."""
    try:
        described = {d["workload"]: d for d in team.discover(sha, tier) if wanted(d["workload"])}
        unbuilt = team.build(sha, tuple(described))
        static = {}
        for key in described:
            if key not in unbuilt:
                try:
                    static[key] = team.static(sha, key)
                except (NotMeasurableError, ChildError):
                    break  # not readable: it will be timed, which is always right
        return _Side(described, static, unbuilt)
    finally:
        team.close()


def _settle_without_timing(
    base: _Side, head: _Side, *, audit_share: float, rng: random.Random
) -> tuple[list[Comparison], list[str], set[str]]:
    settled: list[Comparison] = []
    to_time: list[str] = []
    audited: set[str] = set()
    for key in sorted(base.described.keys() | head.described.keys()):
        statics = base.static.get(key, {}), head.static.get(key, {})
        reason = _why_not_comparable(key, base, head)
        if reason is not None:
            settled.append(
                Comparison(key, Verdict.NOT_COMPARABLE, reason, static_base=statics[0], static_head=statics[1])
            )
        elif identical(*statics):
            if rng.random() < audit_share:
                audited.add(key)
                to_time.append(key)
            else:
                reason = "machine code, data recipe, flags and libraries are equal"
                settled.append(
                    Comparison(key, Verdict.SAME_CODE, reason, static_base=statics[0], static_head=statics[1])
                )
        else:
            to_time.append(key)
    return settled, to_time, audited


def _why_not_comparable(key: str, base: _Side, head: _Side) -> str | None:
    for name, side in (("base", base), ("head", head)):
        if key not in side.described:
            return f"{name} has no such workload"
        if key in side.unbuilt:
            return f"{name} cannot be built: {side.unbuilt[key].splitlines()[0]}"
    for fact in ("version", "problem", "threads"):
        if base.described[key][fact] != head.described[key][fact]:
            return f"its {fact} changed from {base.described[key][fact]} to {head.described[key][fact]}"
    return None


def _conclude(
    key: str,
    result: SessionResult,
    *,
    shas: tuple[str, str],
    stopping: PairStopping,
    audited: bool,
    sides: Sequence[_Side],
) -> Comparison:
    reports = {(m.sha, m.workload): m for m in result.measurements}
    base, head = reports.get((shas[0], key)), reports.get((shas[1], key))
    verdict, reason, look = Verdict.NOT_COMPARABLE, "one of the commits failed", None
    if base is not None and head is not None:
        threads = int(str(sides[0].described[key]["threads"]))
        verdict, reason, look = _verdict(base, head, threads=threads, stopping=stopping)
    if audited:
        # Equal code cannot regress: what an audit finds is about the machine or the hash, so it alarms nobody.
        reason = f"equal code, timed as an audit, which says {verdict.value}: {reason}"
        verdict = Verdict.SAME_CODE
    return Comparison(
        workload=key,
        verdict=verdict,
        reason=reason,
        look=look,
        audited=audited,
        base=base,
        head=head,
        static_base=sides[0].static.get(key, {}),
        static_head=sides[1].static.get(key, {}),
    )


def _verdict(
    base: MeasurementReport, head: MeasurementReport, *, threads: int, stopping: PairStopping
) -> tuple[Verdict, str, Look | None]:
    if head.status is MeasurementStatus.WRONG_RESULT and base.status in {
        MeasurementStatus.OK,
        MeasurementStatus.TOO_NOISY,
    }:
        return Verdict.WRONG_RESULT, head.error or "", None
    # A side that merely got no time is named last: the other one's failure is why.
    by_cause = sorted((("base", base), ("head", head)), key=lambda side: side[1].status is MeasurementStatus.TOO_NOISY)
    for name, report in by_cause:
        if report.status is not MeasurementStatus.OK:
            return Verdict.NOT_COMPARABLE, f"{name}: {report.status.value}: {report.error}", None
    if base.metric != head.metric:
        why = base.static.get("fact.reason") or head.static.get("fact.reason") or ""
        return Verdict.NOT_COMPARABLE, f"base was timed as {base.metric}, head as {head.metric}: {why}", None
    floor, family = stopping.floor, stopping.family
    look = judge(base.blocks, head.blocks, threads=threads, floor=floor, family=family, last=True)
    if look is None or look.verdict is None:
        return Verdict.INCONCLUSIVE, "the time was too short for two pairs", look
    return look.verdict, _why(look, floor), look


def _why(look: Look, floor: float) -> str:
    if look.verdict is Verdict.INCONCLUSIVE:
        if look.pairs < PAIRS_MIN:
            return f"only {look.pairs} pairs: a word needs {PAIRS_MIN}"
        return f"after {look.pairs} pairs the interval neither leaves zero nor fits within {floor:.1%}"
    return f"{look.pairs} pairs on the {look.clock.value} clock at level {look.alpha:.2g}"
