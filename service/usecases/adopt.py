"""Adopt a policy: see what it would have made of the last 90 days, then save it, with a line in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from service.store import audit, commits, repositories
from service.store.tables import Repository
from service.usecases.policy import DetectionPolicy, PolicyError, with_overrides
from service.usecases.replay import Replay, replay

PREVIEW_DAYS = 90


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to change: None leaves a value as it is; `workload` is a pattern, None = the repository."""

    repository: str
    min_effect: float | None = None
    confidence: float | None = None
    workload: str | None = None

    @property
    def values(self) -> dict[str, float]:
        """The values that were named."""
        given = {"min_effect": self.min_effect, "confidence": self.confidence}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy that was tried on the stored history; nothing was written. `names`: position -> (sha, subject)."""

    before: DetectionPolicy
    after: DetectionPolicy
    outcome: Replay
    names: Mapping[int, tuple[str, str]]


def find(session: Session, name: str) -> Repository:
    """The repository of this name. Raises PolicyError."""
    found = repositories.by_name(session, name=name)
    if found is None:
        raise PolicyError(f"no repository {name!r}; `kernelwatch repo list` shows those there are")
    return found


def try_out(session: Session, wish: Wish, *, default: DetectionPolicy, now: datetime) -> Trial:
    """Run the history of the last 90 days through the policy that would follow. Raises PolicyError."""
    repository = find(session, wish.repository)
    after = with_overrides(default, merged(repository.settings, wish))
    since = now - timedelta(days=PREVIEW_DAYS)
    outcome = replay(session, repository_id=repository.id, since=since, policy=after)
    return Trial(
        before=with_overrides(default, repository.settings),
        after=after,
        outcome=outcome,
        names=names_of(session, repository_id=repository.id, outcome=outcome),
    )


def names_of(session: Session, *, repository_id: int, outcome: Replay) -> dict[int, tuple[str, str]]:
    """What people call the commits of a replay's differences."""
    return commits.names_at(
        session, repository_id=repository_id, positions={one.position for one in outcome.differences}
    )


def adopt(session: Session, wish: Wish, *, default: DetectionPolicy, actor: str) -> None:
    """Save it. Two at once follow each other: neither overwrites what the other has set. Raises PolicyError."""
    repository = find(session, wish.repository)
    session.refresh(repository, with_for_update=True)
    before = dict(repository.settings)
    wanted = merged(before, wish)
    with_overrides(default, wanted)  # refuses what cannot mean anything
    repository.settings = wanted
    audit.record(
        session,
        actor=actor,
        action="policy.set",
        subject=("repository", repository.id),
        before=before.get("detection"),
        after=wanted["detection"],
    )


def merged(settings: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    """The repository's settings with the wish in them. Raises PolicyError if it wishes nothing."""
    if not wish.values:
        raise PolicyError("name a smallest change or a confidence")
    detection = dict(settings.get("detection", {}))
    if wish.workload is None:
        detection |= wish.values
    else:
        workloads = dict(detection.get("workloads", {}))
        workloads[wish.workload] = {**workloads.get(wish.workload, {}), **wish.values}
        detection["workloads"] = workloads
    return {**settings, "detection": detection}


def as_plain(policy: DetectionPolicy) -> dict[str, Any]:
    """A policy as JSON has it."""
    return {**asdict(policy), "workloads": {key: dict(values) for key, values in policy.workloads.items()}}
