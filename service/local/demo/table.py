"""Planted versus found: the verdict on the demo and the table that shows it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.domain.reproduce import clone_command
from service.domain.states import NotificationEvent
from service.local.demo.history import MadeCommit, MadePush
from service.local.demo.plan import Planted
from service.local.demo.watch import Found, ToldBreakage, Totals

WIDTH = 100
BREAKAGES = (Planted.BROKEN_BUILD, Planted.WRONG_RESULT)
ENDS = (NotificationEvent.BROKEN, NotificationEvent.REPAIRED)


@dataclass(frozen=True, slots=True)
class Row:
    """One planted commit and what became of it."""

    commit: MadeCommit
    found: Found | None
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """One planted commit that is wrong or does not build, whether its push's tip shows it, and who was told."""

    commit: MadeCommit
    measured: bool
    told: tuple[ToldBreakage, ...]
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The demo passes when nothing is complained of."""

    rows: tuple[Row, ...]
    false_alarms: tuple[Found, ...]
    breakages: tuple[BrokenRow, ...]
    complaints: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Exactly the planted commits were found, and everybody was told once."""
        complaints = [row.complaints for row in self.rows] + [row.complaints for row in self.breakages]
        return not (self.false_alarms or self.complaints or any(complaints))


def judge(
    pushes: Sequence[MadePush],
    found: Sequence[Found],
    *,
    breakages: Sequence[ToldBreakage],
    channels: Sequence[str],
    caught: Mapping[tuple[str, int], int],
) -> Verdict:
    """Compare. `caught` counts the messages that arrived, by channel and regression."""
    planted = [
        commit
        for push in pushes
        for commit in push.commits
        if commit.planned.planted in {Planted.REGRESSION, Planted.IMPROVEMENT}
    ]
    rows = []
    matched: set[int] = set()
    for commit in planted:
        mine = [f for f in found if f.culprit_sha == commit.sha and f.direction == commit.planned.planted.value]
        matched |= {f.regression_id for f in mine}
        rows.append(Row(commit, mine[0] if mine else None, tuple(_complaints(commit, mine, channels, caught))))
    others = tuple(f for f in found if f.regression_id not in matched)
    broken = tuple(_broken_rows(pushes, breakages, channels))
    planted_broken = {row.commit.sha for row in broken}
    stray = [
        f"{one.channel} was told of {one.sha[:10]}: {one.kind}" for one in breakages if one.sha not in planted_broken
    ]
    return Verdict(rows=tuple(rows), false_alarms=others, breakages=broken, complaints=tuple(stray))


def _broken_rows(
    pushes: Sequence[MadePush], breakages: Sequence[ToldBreakage], channels: Sequence[str]
) -> Iterator[BrokenRow]:
    """The tip of each push is measured: a planted breakage there is told once, and once more when it is over."""
    for push in pushes:
        for commit in push.commits:
            if commit.planned.planted not in BREAKAGES:
                continue
            mine = tuple(one for one in breakages if one.sha == commit.sha)
            measured = commit is push.commits[-1]
            wanted = [(channel, event) for channel in channels for event in ENDS if measured]
            told = sorted((one.channel, one.event) for one in mine)
            complaint = f"told {told}, wanted {sorted(wanted)}"
            yield BrokenRow(commit, measured, mine, () if told == sorted(wanted) else (complaint,))


def _complaints(
    commit: MadeCommit, mine: Sequence[Found], channels: Sequence[str], caught: Mapping[tuple[str, int], int]
) -> list[str]:
    if not mine:
        return ["not found"]
    complaints = [f"found {len(mine)} times"] if len(mine) > 1 else []
    found = mine[0]
    if found.families != {commit.planned.family}:
        complaints.append(f"blamed for {', '.join(sorted(found.families)) or 'nothing'}")
    for channel in channels:
        sent = {event: count for name, event, count in found.told if name == channel}
        if "opened" not in sent or "attributed" not in sent:
            complaints.append(f"{channel} heard only of: {', '.join(sorted(sent)) or 'nothing'}")
        complaints += [f"{channel} was told {count} times: {event}" for event, count in sent.items() if count != 1]
        arrived = caught.get((channel, found.regression_id), 0)
        if arrived != len(sent):
            complaints.append(f"{arrived} messages arrived at {channel} for {len(sent)} events")
    return complaints


@dataclass(frozen=True, slots=True)
class NextSteps:
    """What a person needs to go on: to sign in, a clone, and the program."""

    sign_in_url: str
    clone_url: str
    program: str  # path of `kernelwatch`

    def lines(self, found: Sequence[Found]) -> list[str]:
        """Each step as one line to copy."""
        lines = [f"sign in   {self.sign_in_url}"]
        first = next((one.reproduce for one in found if one.reproduce), "")
        if first:
            compare = first.replace("kernelwatch", shlex.quote(self.program), 1)
            lines += [
                "reproduce the first one in a clone of your own:",
                f"  {clone_command(self.clone_url)} && {compare}",
            ]
        return lines


def render(
    verdict: Verdict,
    totals: Totals,
    *,
    web_url: str,
    catcher_url: str | None,
    wall_s: float,
    steps: NextSteps | None = None,
) -> str:
    """The table as text for a terminal."""
    lines = ["", "planted versus found".upper(), "-" * WIDTH]
    for row in verdict.rows:
        commit = row.commit
        lines.append(
            f"{'FOUND' if row.found and not row.complaints else 'MISSED':<7}{commit.sha[:10]}  {commit.planned.subject}"
        )
        lines.append(f"       planted: {commit.planned.planted.value} in {commit.planned.family}")
        if row.found:
            told = ", ".join(f"{channel} {event}" for channel, event, _ in row.found.told)
            lines.append(
                f"       found: {row.found.effect:+.1%} in {row.found.series} series, "
                f"{row.found.cost_device_s:.1f} device-seconds to confirm and search"
            )
            lines.append(f"       told once each: {told or 'nobody'}")
            lines.append(f"       {web_url}/regressions/{row.found.regression_id}")
        lines += [f"       !! {complaint}" for complaint in row.complaints]
    for broken in verdict.breakages:
        commit, kind = broken.commit, broken.commit.planned.planted.value.replace("_", " ")
        told = ", ".join(f"{one.channel} {one.event}" for one in broken.told)
        why = f"told once each: {told}" if broken.measured else "put right within its push: nobody is told"
        word = "MISSED" if broken.complaints else "TOLD" if broken.measured else "QUIET"
        lines.append(f"{word:<7}{commit.sha[:10]}  {commit.planned.subject}")
        lines.append(f"       planted: {kind}; {why}")
        lines += [f"       !! {complaint}" for complaint in broken.complaints]
    for alarm in verdict.false_alarms:
        culprit = alarm.culprit_sha[:10] if alarm.culprit_sha else "an unnamed commit"
        lines.append(f"FALSE  {culprit}: {alarm.direction} {alarm.effect:+.1%} in {', '.join(sorted(alarm.families))}")
        lines.append(f"       {web_url}/regressions/{alarm.regression_id}")
    lines += [f"!! {complaint}" for complaint in verdict.complaints]
    lines.append("-" * WIDTH)
    lines.append(
        f"{totals.runs} runs ({totals.failed_runs} failed), {totals.measurements} measurements "
        f"({totals.wrong_results} wrong results kept out), {totals.device_s:.0f} device-seconds, {wall_s:.0f} s in all"
    )
    lines.append(f"dashboard {web_url}")
    if catcher_url:
        lines.append(f"messages  {catcher_url}")
    if steps is not None:
        lines += steps.lines([row.found for row in verdict.rows if row.found])
    lines.append("exactly the planted commits were found" if verdict.passed else "the demo FAILED")
    return "\n".join(lines)
