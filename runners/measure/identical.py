"""Identical code ends the question: what need not be timed between commits, and the one in ten that is all the same.

Two commits whose machine code, recipe (the Python around it with its launch configuration, flags, threads) and
libraries (the same machine at the same time) are equal can only differ by noise. The audit keeps the rule honest: if
equal code ever measured apart, the hash would be missing something. Which ones are audited follows from the hashes
alone, so two runners, or one asked twice, agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from service.contract import MeasurementStatus

if TYPE_CHECKING:
    from runners.measure.ledger import Entry, Ledger
    from runners.measure.team import Team

IDENTITY_FACTS = ("code_hash", "recipe_hash")
AUDIT_ONE_IN = 10


class IdenticalCode(StrEnum):
    """What an interleaved session does with workloads whose code is equal on both sides."""

    TIMED = "timed"
    SETTLED = "settled"  # without timing, but for the audit


def identical(base: Mapping[str, Any], head: Mapping[str, Any]) -> bool:
    """Whether both sides run the very same machine code on the same recipe: then timing can only tell of noise."""
    return all(base.get(fact) and base.get(fact) == head.get(fact) for fact in IDENTITY_FACTS)


def audited(key: str, facts: Mapping[str, Any], shas: tuple[str, str]) -> bool:
    """Whether this pair is the one in ten that is timed although its code is equal."""
    text = "\0".join((key, *(str(facts.get(fact)) for fact in IDENTITY_FACTS), *sorted(shas)))
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % AUDIT_ONE_IN == 0


def settle(ledger: Ledger, team: Team) -> None:
    """Take out of the plan what needs no timing: workloads of the first subject whose code a partner has as well.

    The twins say so in their reports; other partners of such a workload have nothing left to be compared with, and the
    vendor controls none when no kernel is left beside them.
    """
    subject = team.subjects[0].sha
    partners = [other.sha for other in team.subjects[1:]]
    for key, entry in list(ledger.entries[subject].items()):
        if entry.failed is not None or entry.described["control"]:
            continue
        beside = {sha: other for sha in partners if (other := ledger.entries[sha].get(key)) and other.failed is None}
        for one in (entry, *beside.values()):
            read_code(team, one)
        twin = next((sha for sha, other in beside.items() if _same(entry, other)), None)
        if twin is None or audited(key, _facts(entry), (subject, twin)):
            continue
        _mark(entry, twin)
        _mark(beside.pop(twin), subject)
        for sha in beside:
            del ledger.entries[sha][key]
    if not any(not entry.described["control"] for entry in ledger.measurable()):
        for by_key in ledger.entries.values():
            for key in [key for key, entry in by_key.items() if entry.failed is None]:
                del by_key[key]


def read_code(team: Team, entry: Entry) -> None:
    """Note what the machine code of one workload of one commit says."""
    from runners.measure.crew import blaming

    with blaming(entry, "reading its code"):
        found = team.static(entry.sha, entry.key)
        entry.code_hash = found.pop("code_hash", None)
        entry.static.update(found)


def _facts(entry: Entry) -> dict[str, Any]:
    return {**entry.static, "code_hash": entry.code_hash}


def _same(entry: Entry, other: Entry) -> bool:
    described = all(entry.described[fact] == other.described[fact] for fact in ("version", "problem", "threads"))
    return described and entry.failed is None and other.failed is None and identical(_facts(entry), _facts(other))


def _mark(entry: Entry, twin: str) -> None:
    entry.failed = MeasurementStatus.IDENTICAL
    entry.error = f"same (identical code) as {twin[:12]}: not timed"
    entry.identical_to = twin
