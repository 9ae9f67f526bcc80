"""`kernelwatch compare BASE HEAD`: two commits of the repository at hand, on this machine, without any service.

Both are checked out apart (the working tree is not touched), built, proven right and compared by interleaved pairs.
The kernels run as the person who asks, unconfined: compare commits that you would also run yourself.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runners.local_homes import cache_dir, state_dir

if TYPE_CHECKING:
    from runners.measure.comparison import Comparison, ComparisonResult
    from runners.measure.team import Subject

EXIT_ERROR = 3
PAIRS_MAX = 40
BLOCK_S = 0.015
QUARTETS = 2


class Share(click.ParamType[float]):
    """A share given as `1%` or `0.01`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or say how it must look."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            self.fail(f"{text!r} is not a share: write 1% or 0.01", param, ctx)
        if not 0 < share < 1:
            self.fail(f"{text!r} must lie between 0 and 100 %", param, ctx)
        return share


class Seconds(click.ParamType[float]):
    """A time given as `20s`, `2m` or `20`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or say how it must look."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        scale = {"s": 1.0, "m": 60.0}.get(text[-1:], 0.0)
        try:
            return float(text[:-1]) * scale if scale else float(text)
        except ValueError:
            self.fail(f"{text!r} is not a time: write 20s or 2m", param, ctx)


@click.command()
@click.argument("base")
@click.argument("head")
@click.option("--kernel", "pattern", default="*", help="Only workloads whose name or kernel matches this glob.")
@click.option("--floor", type=Share(), default="1%", show_default=True, help="Smallest change that matters.")
@click.option("--budget", type=Seconds(), default="60s", show_default=True, help="Measuring time at most.")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", show_default=True)
@click.option("--suite", default="kernels_under_test", show_default=True, help="Folder of the suite in the repository.")
@click.option("--tier", type=click.Choice(["core", "nightly", "weekly"]), default="core", show_default=True)
@click.option("--device", "device_kind", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--cpu", type=int, default=None, help="Core to measure on (default: the last allowed one).")
@click.option("--audit", is_flag=True, help="Time one in ten workloads with identical code all the same.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(
    *,
    base: str,
    head: str,
    pattern: str,
    floor: float,
    budget: float,
    repo: Path,
    suite: str,
    tier: str,
    device_kind: str,
    cpu: int | None,
    audit: bool,
    as_json: bool,
) -> None:
    """Compare two commits; exit 0: nothing regressed and all was compared, 1: regression, 2: cannot tell, 3: error."""
    from runners.device import open_device
    from runners.errors import RunnerError
    from runners.measure.comparison import AUDIT_SHARE
    from runners.measure.comparison import compare as compare_subjects
    from runners.measure.cuda_code import CudaCode
    from runners.measure.local_child import LocalChild
    from service.contract import ProtocolParams

    wanted = Wanted(pattern)
    params = ProtocolParams(processes=PAIRS_MAX, blocks=QUARTETS, block_s=BLOCK_S, budget_s=budget)
    try:
        with ExitStack() as stack:
            code = CudaCode(
                cache_dir=cache_dir() / "cuda_code",
                spawn=lambda: LocalChild(module="runners.measure.compile_child"),
                clock=time.monotonic,
            )
            stack.callback(code.close)
            subjects = [check_out(stack, repo, suite, revision) for revision in (base, head)]
            if subjects[0].sha == subjects[1].sha:
                subjects[1] = _again(subjects[1])
            result = compare_subjects(
                *subjects,
                spawn=lambda _subject, _process: LocalChild(),
                device=open_device(device_kind, state_dir=state_dir(), cpu=cpu),
                params=params,
                floor=floor,
                wanted=wanted,
                tier=tier,
                audit_share=AUDIT_SHARE if audit else 0.0,
                progress=_progress if sys.stderr.isatty() else lambda _stage, _done, _total: True,
                code=code,
                rng=random.Random(),
                clock=time.monotonic,
            )
    except RunnerError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_ERROR)
    if not (result.comparisons or result.failures):
        click.echo(f"error: {wanted.no_match(f'of the {tier} tier for {device_kind}')}", err=True)
        sys.exit(EXIT_ERROR)
    click.echo(json.dumps(as_object(result, floor=floor), indent=1) if as_json else as_table(result))
    sys.exit(result.exit_code)


def matches(key: str, pattern: str) -> bool:
    """Whether a workload key, or its kernel's name alone, matches a glob; brackets of keys are taken literally."""
    literal = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(key, literal) or fnmatch.fnmatchcase(key.partition("[")[0], literal)


class Wanted:
    """The workloads that a pattern asks for, and the names that it was offered."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.offered: set[str] = set()

    def __call__(self, key: str) -> bool:
        """Whether a workload is asked for."""
        self.offered.add(key)
        return matches(key, self.pattern)

    def no_match(self, where: str) -> str:
        """Say that nothing was, and which names are near."""
        kernels = sorted({key.partition("[")[0] for key in self.offered})
        near = difflib.get_close_matches(self.pattern.partition("[")[0], kernels, n=5, cutoff=0.4) or kernels[:5]
        known = f"; near are {', '.join(near)}" if near else "; there is none at all"
        return f"no workload {where} matches {self.pattern!r}{known}"


def check_out(stack: ExitStack, repo: Path, suite: str, revision: str) -> Subject:
    """Check a revision out for as long as the stack is open; raises CheckoutError."""
    from runners.checkout import CheckoutError, Mirror
    from runners.measure.team import Subject
    from service.contract import FailureKind

    command = ["git", "-C", str(repo), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckoutError(f"{repo.resolve()} has no commit {revision!r}", FailureKind.PERMANENT)
    mirror = Mirror(cache_dir(), name=repo.resolve().name, clone_url=str(repo.resolve()))
    tree = stack.enter_context(mirror.worktree(done.stdout.strip(), suite))
    return Subject(tree.sha, tree.suite_dir, cache_dir() / "libraries")


def _again(subject: Subject) -> Subject:
    """The same commit as a second subject: an A/A comparison."""
    from runners.measure.team import Subject

    return Subject(f"{subject.sha}-again", subject.suite_dir, subject.build_dir)


def _progress(stage: str, done: int, total: int) -> bool:
    click.echo(f"\r{stage}: pair {done + 1} of at most {total} ", nl=False, err=True)
    return True


def as_object(result: ComparisonResult, *, floor: float) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "floor": floor,
        "exit_code": result.exit_code,
        "pairs": result.pairs,
        "device_s": result.device_s,
        "failures": [{"sha": f.sha, "stage": f.failure.stage, "reason": f.failure.reason} for f in result.failures],
        "workloads": [_workload_object(c) for c in result.comparisons],
    }


def _workload_object(comparison: Comparison) -> dict[str, Any]:
    look = comparison.look
    found: dict[str, Any] = {
        "workload": comparison.workload,
        "verdict": comparison.verdict,
        "reason": comparison.reason,
        "audited": comparison.audited,
        "flags": list(comparison.flags),
        "static": {"base": comparison.static_base, "head": comparison.static_head},
    }
    if look is not None:
        found |= {"ratio": look.ratio, "ci": [look.low, look.high], "pairs": look.pairs, "alpha": look.alpha}
        found["clock"] = look.clock
    for name, report in (("base", comparison.base), ("head", comparison.head)):
        if report is not None:
            found[f"{name}_s"] = report.value_s
    return found


def as_table(result: ComparisonResult) -> str:
    """A line per workload: verdict, change with its interval, pairs, flags; then why, where it is not plain."""
    from runners.measure.pairs import Verdict

    rows = [("workload", "verdict", "change", "interval", "pairs", "clock", "flags")]
    for c in result.comparisons:
        if c.look is None:
            why = "" if c.verdict is Verdict.SAME_CODE else c.reason.splitlines()[0][:70]
            rows.append((c.workload, c.verdict.value, "", "", "", "", why))
            continue
        change = f"{c.look.ratio - 1:+.2%}"
        interval = f"{c.look.low - 1:+.2%} … {c.look.high - 1:+.2%}"
        rows.append(
            (c.workload, c.verdict.value, change, interval, str(c.look.pairs), c.look.clock.value, " ".join(c.flags))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{f.sha[:12]} failed while it was {f.failure.stage.value}: {f.failure.reason}" for f in result.failures]
    counts: dict[str, int] = {}
    for c in result.comparisons:
        counts[c.verdict.value] = counts.get(c.verdict.value, 0) + 1
    summary = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())) or "nothing was compared"
    lines.append(f"{summary}; {result.pairs} pairs of processes, {result.device_s:.0f} s on the device")
    return "\n".join(lines)
