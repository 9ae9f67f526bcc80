"""Severity: how loudly to say it."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """From a note to an incident."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


ORDER = tuple(Severity)
_STEPS = ((0.30, Severity.CRITICAL), (0.10, Severity.HIGH), (0.05, Severity.MEDIUM))


def severity_of(effect: float) -> Severity:
    """Return the severity of a relative change of its clearest series."""
    size = abs(effect)
    return next((severity for bound, severity in _STEPS if size >= bound), Severity.LOW)


def at_least(severity: str, floor: str) -> bool:
    """Whether `severity` reaches `floor`."""
    return ORDER.index(Severity(severity)) >= ORDER.index(Severity(floor))
