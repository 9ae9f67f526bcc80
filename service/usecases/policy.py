"""What counts as a change: defaults of the service, overridden by the repository, overridden per workload.

A repository keeps its own in `repository.settings["detection"]`:

    {"min_effect": 0.03, "confidence": 0.99, "workloads": {"moe_f32[*": {"min_effect": 0.05}}}

The pattern is a shell pattern over the workload key; of several that match, the longest counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

FIELDS = ("min_effect", "confidence")


class PolicyError(ValueError):
    """A policy that cannot mean anything; the message says which value and what would be right."""


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """The relative change below which nothing is suspected or confirmed, and how sure a confirmation must be."""

    min_effect: float = 0.02
    confidence: float = 0.99
    workloads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that would switch detection off unnoticed or make it meaningless."""
        if not 0 < self.min_effect <= 0.5:
            raise PolicyError(f"min_effect is {self.min_effect}: it must be above 0 and at most 0.5 (50 %)")
        if not 0.9 <= self.confidence < 1:
            raise PolicyError(f"confidence is {self.confidence}: it must be at least 0.9 and below 1")
        for pattern, values in self.workloads.items():
            unknown = set(values) - set(FIELDS)
            if unknown:
                raise PolicyError(f"{pattern!r} sets {min(unknown)!r}; a policy has {' and '.join(FIELDS)}")
            replace(self, workloads={}, **values)

    def of(self, workload_key: str) -> DetectionPolicy:
        """Return the policy of one workload."""
        patterns = [
            pattern
            for pattern in self.workloads
            if fnmatchcase(workload_key, pattern) or fnmatchcase(workload_key, pattern.replace("[", "[[]"))
        ]
        if not patterns:
            return self
        return replace(self, workloads={}, **self.workloads[max(patterns, key=len)])


def with_overrides(default: DetectionPolicy, settings: Mapping[str, Any]) -> DetectionPolicy:
    """Return the policy of a repository: the default, with what its settings say. Raises PolicyError."""
    own = dict(settings.get("detection", {}))
    unknown = set(own) - {*FIELDS, "workloads"}
    if unknown:
        raise PolicyError(f"unknown setting {min(unknown)!r}: a policy has {', '.join(FIELDS)} and workloads")
    return replace(default, **own)
