"""A commit against itself: the two sides of an A/A run, and the one report that they make.

Both sides come from one worktree and one build: what differs is only what differs between two processes, so whatever
the verdict says of them is a false alarm. In the report processes 2k and 2k+1 are the pair that was interleaved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from runners.measure.team import Subject
from service.contract import CommitFailure, MeasurementReport, MeasurementStatus, SampleBlock

TWIN = "-twin"


def twin_of(subject: Subject) -> Subject:
    """Return the other side: the same suite under another name."""
    return replace(subject, sha=subject.sha + TWIN)


def merged(measurements: Sequence[MeasurementReport], sha: str) -> tuple[MeasurementReport, ...]:
    """Return one measurement per workload from those of both sides; a side that failed is what is reported."""
    twins = {item.workload: item for item in measurements if item.sha == sha + TWIN}
    mine = [item for item in measurements if item.sha == sha and item.workload in twins]
    return tuple(_merge(item, twins[item.workload]) for item in mine)


def merged_failures(failures: Sequence[CommitFailure], sha: str) -> tuple[CommitFailure, ...]:
    """Return what went wrong with either side as the commit's own failure, once."""
    return tuple(replace(failure, sha=sha) for failure in failures[:1])


def _merge(one: MeasurementReport, other: MeasurementReport) -> MeasurementReport:
    if other.status is not MeasurementStatus.OK:
        return replace(other, sha=one.sha)
    if one.status is not MeasurementStatus.OK or one.value_s is None or other.value_s is None:
        return one
    return replace(
        one,
        value_s=math.sqrt(one.value_s * other.value_s),
        half_width_s=_half_width_s(one, other),
        clock="cpu" if "cpu" in {one.clock, other.clock} else "wall",
        blocks=(*_numbered(one.blocks, side=0), *_numbered(other.blocks, side=1)),
        flags=tuple(sorted({*one.flags, *other.flags})),
    )


def _half_width_s(one: MeasurementReport, other: MeasurementReport) -> float | None:
    if one.half_width_s is None or other.half_width_s is None:
        return None
    return math.hypot(one.half_width_s, other.half_width_s) / 2


def _numbered(blocks: Sequence[SampleBlock], *, side: int) -> tuple[SampleBlock, ...]:
    return tuple(replace(block, process=2 * block.process + side) for block in blocks)
