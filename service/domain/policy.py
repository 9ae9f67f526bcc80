"""Which commits of a push are measured, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.domain.states import MeasurePolicy

MAX_RUNS_PER_PUSH = 50  # a first push of a long history must not order years of device time


def commits_to_measure(policy: MeasurePolicy, pushed: Sequence[str]) -> tuple[str, ...]:
    """The commits to measure among the first-parent commits of a push, oldest first.

    TIP takes the last one and leaves the rest to bisection; EVERY takes all, of a very long push the newest
    MAX_RUNS_PER_PUSH.
    """
    wanted = 1 if policy is MeasurePolicy.TIP else MAX_RUNS_PER_PUSH
    return tuple(pushed[-wanted:])


def reason_to_skip(sha: str, *, trees: Mapping[str, str | None], measured_before: str | None) -> str | None:
    """Why a commit need not be measured, or None if it must be.

    `trees` maps shas to the hash of everything that can change a kernel's speed: the suite and the watched paths. A
    commit whose hash equals that of the last measured one would give the same binary; measuring it would only add
    noise to the history, and it cannot be a culprit.
    """
    tree = trees[sha]
    if tree is None:
        return "the suite does not exist at this commit"
    if measured_before is not None and trees.get(measured_before) == tree:
        return f"the suite and the watched paths are the same as in {measured_before[:12]}"
    return None
