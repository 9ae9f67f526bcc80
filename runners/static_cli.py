"""`kernelwatch static BASE HEAD`: what two commits' machine code says, without a GPU, a timing or any service.

CPU kernels are built as for measuring; CUDA sources are compiled for every architecture with the extra `static`. All of
it is exact, so any difference is reported: spills or stack up is a warning, any other change says "look here".
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.compare_cli import EXIT_ERROR, check_out, matches
from runners.local_homes import cache_dir, state_dir
from service.contract import StaticFinding, StaticReport, static_finding

if TYPE_CHECKING:
    from runners.measure.team import Subject

TARGETS = ("cpu", "sm_80", "sm_90a", "sm_100a")
MISSING = "missing"
WORDS = {StaticFinding.SAME: "same", StaticFinding.LOOK_HERE: "look here", StaticFinding.WARNING: "warning"}
COMPILE_BUDGET_S = 900.0


@dataclass(slots=True)
class Side:
    """What one commit's machine code says, by kernel and target; `missing` says why a kernel has nothing to say."""

    reports: dict[tuple[str, str], StaticReport] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unread: str | None = None  # why CUDA sources were not read, or not all


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one target: the verdict and the facts that differ."""

    kernel: str
    target: str
    finding: str
    reason: str
    changes: dict[str, tuple[float | str | None, float | str | None]]


@click.command()
@click.argument("base")
@click.argument("head")
@click.option("--kernel", "pattern", default="*", help="Only kernels whose name matches this glob.")
@click.option(
    "--arch", "targets", multiple=True, type=click.Choice(TARGETS), help="Only this target (may be given again)."
)
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", show_default=True)
@click.option("--suite", default="kernels_under_test", show_default=True, help="Folder of the suite in the repository.")
@click.option("--all", "show_all", is_flag=True, help="Show kernels that are the same, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def static(
    *,
    base: str,
    head: str,
    pattern: str,
    targets: tuple[str, ...],
    repo: Path,
    suite: str,
    show_all: bool,
    as_json: bool,
) -> None:
    """Compare machine code; exit 0: nothing warns and all was compared, 1: warning, 2: something missing, 3: error."""
    from runners.errors import RunnerError

    wanted = targets or TARGETS
    try:
        with ExitStack() as stack:
            subjects = [check_out(stack, repo, suite, revision) for revision in (base, head)]
            before, after = (read_side(subject, pattern=pattern, targets=wanted) for subject in subjects)
    except RunnerError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_ERROR)
    rows = compare_sides(before, after, targets=wanted)
    unread = sorted({side.unread for side in (before, after) if side.unread is not None})
    code = exit_code(rows, unread)
    if as_json:
        shown = {"exit_code": code, "unread": unread, "kernels": [_as_object(row) for row in rows]}
        click.echo(json.dumps(shown, indent=1))
    else:
        click.echo(as_table(rows, unread=unread, show_all=show_all))
    sys.exit(code)


def read_side(subject: Subject, *, pattern: str, targets: Sequence[str]) -> Side:
    """Build and compile what is asked for, in processes of their own."""
    from runners.device import open_device
    from runners.measure.cuda_code import CudaCode
    from runners.measure.local_child import LocalChild
    from runners.measure.team import Team
    from runners.survey import survey_cpu, survey_cuda
    from service.contract import ProtocolParams

    def compiler() -> LocalChild:
        return LocalChild(module="runners.measure.compile_child")

    side = Side()
    reports: list[StaticReport] = []
    code = CudaCode(
        cache_dir=cache_dir() / "cuda_code", spawn=compiler, clock=time.monotonic, budget_s=COMPILE_BUDGET_S
    )
    team = Team(
        [subject],
        process=0,
        spawn=lambda _subject, _process: LocalChild(),
        device=open_device("cpu", state_dir=state_dir()),
        params=ProtocolParams(),
        clock=time.monotonic,
        code=code,
    )
    with closing(team), closing(code):
        if "cpu" in targets:
            found, side.missing = survey_cpu(team, subject.sha, wanted=lambda name: matches(name, pattern))
            reports += found
        if set(targets) - {"cpu"}:
            found, side.unread = survey_cuda(team, subject.sha, wanted=lambda name: matches(name, pattern))
            reports += found
    side.reports = {(one.benchmark, one.target): one for one in reports if one.target in targets}
    return side


def compare_sides(before: Side, after: Side, *, targets: Sequence[str]) -> list[Row]:
    """A row per kernel and target that at least one side knows."""
    keys = {*before.reports, *after.reports, *((name, "cpu") for side in (before, after) for name in side.missing)}
    rows = []
    for kernel, target in sorted(keys, key=lambda key: (key[0], targets.index(key[1]))):
        sides = [side.reports.get((kernel, target)) for side in (before, after)]
        reasons = [
            f"{name}: {side.missing.get(kernel) or side.unread or 'has no such kernel'}"
            for name, side, found in (("base", before, sides[0]), ("head", after, sides[1]))
            if found is None
        ]
        if sides[0] is None or sides[1] is None:
            rows.append(Row(kernel, target, MISSING, "; ".join(reasons), {}))
        else:
            rows.append(compare_reports(sides[0], sides[1]))
    return rows


def compare_reports(base: StaticReport, head: StaticReport) -> Row:
    """The verdict on one kernel for one target; a target that neither side supports has not changed."""
    about = base.benchmark, base.target
    if base.error is not None and head.error is not None:
        return Row(*about, WORDS[StaticFinding.SAME], "neither side compiles for it", {})
    if base.error is not None or head.error is not None:
        name, error = ("base", base.error) if base.error is not None else ("head", head.error)
        return Row(*about, MISSING, f"{name} does not compile for it: {str(error).strip().splitlines()[-1]}", {})
    finding = static_finding(base.facts, head.facts, code=(base.code_hash, head.code_hash))
    changes: dict[str, tuple[float | str | None, float | str | None]] = {
        name: (base.facts.get(name), head.facts.get(name))
        for name in sorted({*base.facts, *head.facts})
        if base.facts.get(name) != head.facts.get(name)
    }
    if base.code_hash != head.code_hash:
        changes["machine code"] = base.code_hash, head.code_hash
    return Row(*about, WORDS[finding], "", changes)


def exit_code(rows: Sequence[Row], unread: Sequence[str]) -> int:
    """0 nothing warns and everything was compared; 1 a warning; 2 something is missing, or there was nothing."""
    findings = {row.finding for row in rows}
    if WORDS[StaticFinding.WARNING] in findings:
        return 1
    return 2 if MISSING in findings or unread or not rows else 0


def _as_object(row: Row) -> dict[str, Any]:
    changes = {name: {"base": values[0], "head": values[1]} for name, values in row.changes.items()}
    found = {"kernel": row.kernel, "target": row.target, "finding": row.finding, "changes": changes}
    return found | ({"reason": row.reason} if row.reason else {})


def as_table(rows: Sequence[Row], *, unread: Sequence[str], show_all: bool) -> str:
    """A line per kernel and target that changed (or all), then how many there are of each kind."""
    shown = [("kernel", "target", "finding", "what changed")]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.finding] = counts.get(row.finding, 0) + 1
        if show_all or row.finding != WORDS[StaticFinding.SAME]:
            words = row.reason or ", ".join(_change(name, *values) for name, values in row.changes.items())
            shown.append((row.kernel, row.target, row.finding, words))
    widths = [max(len(line[column]) for line in shown) for column in range(3)]
    lines = ["  ".join((*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[3])) for line in shown]
    lines += [f"not read: {reason}" for reason in unread]
    lines.append(", ".join(f"{n} {finding}" for finding, n in sorted(counts.items())) or "nothing was compared")
    return "\n".join(line.rstrip() for line in (lines if len(shown) > 1 else lines[1:]))


def _change(name: str, before: float | str | None, after: float | str | None) -> str:
    def word(value: float | str | None) -> str:
        return f"{value:g}" if isinstance(value, float) else "none" if value is None else value[:8]

    return f"{name} {word(before)} → {word(after)}"
