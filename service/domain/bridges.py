"""The boundary between a series and the one that it continues: what changed there, and by how much the level did. Pure.

The step at a boundary is the environment's. Its size is known only from commits that were measured on both sides: the
mean over commits of log(new / old), with Student's t over commits, since the commits are what is replicated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from service.domain.points import Point, reach

PER_HOST = frozenset({"canary_reference_s", "measured_cpu"})
"""Facts that differ from host to host of one class: never what made the class another."""


class BoundaryKind(StrEnum):
    """Why a series starts anew: another machine or stopwatch, or another meaning of what is measured."""

    ENVIRONMENT = "environment"
    VERSION = "benchmark version"


@dataclass(frozen=True, slots=True)
class Boundary:
    """What differs between a series and its predecessor, as words like "driver 550 → 555"."""

    kind: BoundaryKind
    changes: tuple[str, ...]

    @property
    def words(self) -> str:
        """One line for a mark on a chart."""
        return f"new {self.kind}: {', '.join(self.changes)}"


@dataclass(frozen=True, slots=True)
class Bridge:
    """New level over old on the same commits, with its 95 % interval; no interval from a single commit."""

    ratio: float
    low: float | None
    high: float | None
    commits: int


def changed_facts(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Name the facts that each side agrees on and that differ between the sides, as "name old → new"."""
    found = []
    for name in sorted({name for facts in (*before, *after) for name in facts} - PER_HOST):
        old = {str(facts.get(name, "unknown")) for facts in before}
        new = {str(facts.get(name, "unknown")) for facts in after}
        if len(old) == len(new) == 1 and old != new:
            found.append(f"{name.replace('_', ' ')} {min(old)} → {min(new)}")
    return tuple(found)


def boundary_of(
    *, facts: tuple[str, ...], keys: tuple[str, str], epochs: tuple[int, int], versions: tuple[int, int]
) -> Boundary:
    """Say what changed; each pair is (before, after). Units and directions change with the version's meaning."""
    changes: list[str] = []
    if versions[0] != versions[1]:
        changes.append(f"version {versions[0]} → {versions[1]}")
    if epochs[0] != epochs[1]:
        changes.append(f"harness epoch {epochs[0]} → {epochs[1]}")
    if keys[0] != keys[1]:
        changes += facts or (f"environment class {keys[0]} → {keys[1]}",)
    if not changes:
        changes.append("unit or direction of the metric")
    new_meaning = versions[0] != versions[1] or (keys[0] == keys[1] and epochs[0] == epochs[1])
    return Boundary(BoundaryKind.VERSION if new_meaning else BoundaryKind.ENVIRONMENT, tuple(changes))


def bridge_between(old: Sequence[Point], new: Sequence[Point]) -> Bridge | None:
    """Return the ratio of new to old over the commits that both hold; None if there is none."""
    before = {point.commit_id: point.value_s for point in old}
    logs = [math.log(point.value_s / before[point.commit_id]) for point in new if point.commit_id in before]
    if not logs:
        return None
    mean = fmean(logs)
    if len(logs) == 1:
        return Bridge(math.exp(mean), None, None, 1)
    half = reach(len(logs)) * stdev(logs) / math.sqrt(len(logs))
    return Bridge(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))
