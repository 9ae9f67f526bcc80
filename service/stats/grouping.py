"""From many series to few alerts: false-discovery control over a batch, then votes per commit.

One commit moves many series, and each series places the change a commit or two off. In histories of real GPU suites
59 to 94 % of all changes fall on a few commits. So the series vote: the commit with most votes becomes an alert and
takes the changes within `absorb` commits with it; what is left votes again. O(changes x alerts).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.stats.verdict import FAMILIES_LIMIT

FALSE_DISCOVERY_RATE = 0.025
ABSORB_COMMITS = 3


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """One change of one series: `commit` is its position, `family` the kernel family, `p_value` scan-corrected."""

    series: str
    family: str
    commit: int
    effect: float
    z: float
    p_value: float


@dataclass(frozen=True, slots=True)
class CommitAlert:
    """Changes of many series that one commit explains."""

    commit: int
    first: int
    last: int
    """Commits over which the members' own places spread."""
    members: tuple[SeriesChange, ...]
    families: tuple[str, ...]
    environment: bool
    """More than the limit of all watched families moved: no commit is blamed."""

    @property
    def votes(self) -> int:
        """Number of series that moved."""
        return len({member.series for member in self.members})


def discoveries(p_values: Sequence[float], *, tests: int, rate: float = FALSE_DISCOVERY_RATE) -> list[bool]:
    """Return which p-values are discoveries at a false-discovery rate (Benjamini and Hochberg 1995).

    `tests` counts all tests made, also those that are not in `p_values` because nothing was found.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    kept = 0
    for rank, index in enumerate(order, start=1):
        if p_values[index] <= rate * rank / max(tests, len(p_values)):
            kept = rank
    accepted = set(order[:kept])
    return [index in accepted for index in range(len(p_values))]


def group(
    changes: Iterable[SeriesChange],
    *,
    series: int,
    families: int,
    rate: float = FALSE_DISCOVERY_RATE,
    absorb: int = ABSORB_COMMITS,
) -> tuple[CommitAlert, ...]:
    """Turn the changes of a batch of `series` series in `families` families into alerts, in commit order.

    A change weighs as much as its evidence, up to a limit: votes decide, not one loud series.
    """
    found = list(changes)
    kept = discoveries([change.p_value for change in found], tests=series, rate=rate)
    left = [change for change, keep in zip(found, kept, strict=True) if keep]
    alerts = []
    while left:
        commit = _most_voted(left)
        members = [change for change in left if abs(change.commit - commit) <= absorb]
        left = [change for change in left if abs(change.commit - commit) > absorb]
        names = tuple(sorted({member.family for member in members}))
        alerts.append(
            CommitAlert(
                commit=commit,
                first=min(member.commit for member in members),
                last=max(member.commit for member in members),
                members=tuple(sorted(members, key=lambda member: (-abs(member.z), member.series))),
                families=names,
                environment=families >= 4 and len(names) > FAMILIES_LIMIT * families,
            )
        )
    return tuple(sorted(alerts, key=lambda alert: alert.commit))


def _most_voted(changes: Sequence[SeriesChange]) -> int:
    votes: dict[int, float] = defaultdict(float)
    for change in changes:
        votes[change.commit] += min(abs(change.z), 10.0) ** 2
    # Neighbours count a little: of two equal commits the one in the thick of the votes is the likelier culprit.
    support = {c: v + 0.1 * (votes.get(c - 1, 0.0) + votes.get(c + 1, 0.0)) for c, v in list(votes.items())}
    return max(support, key=lambda c: (support[c], -c))
