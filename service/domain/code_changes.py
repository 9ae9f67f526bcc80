"""What changed in the machine code between a commit and its predecessor: exact facts, so any difference is a finding.

A finding of kind "look here" asks a person to look; spills or stack that grew are a warning. Neither is a regression:
only times are, and nobody is told of a finding by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.contract import StaticFinding, static_finding


@dataclass(frozen=True, slots=True)
class Code:
    """The machine code of one implementation at one commit for one target."""

    sha: str
    code_hash: str | None
    recipe_hash: str | None
    facts: Mapping[str, float]
    error: str | None


@dataclass(frozen=True, slots=True)
class CodeChange:
    """How one implementation's code for one target differs from the predecessor's, by the same compiler."""

    benchmark: str
    target: str
    toolchain: str
    before: Code
    after: Code
    finding: StaticFinding
    differences: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def code_changed(self) -> bool:
        """Whether the machine code itself is another."""
        return self.before.code_hash != self.after.code_hash

    @property
    def recipe_changed(self) -> bool:
        """Whether the launch configuration, flags or data recipe around it changed."""
        return self.before.recipe_hash != self.after.recipe_hash

    @property
    def words(self) -> str:
        """The difference as a sentence part: the facts with their values, then what else changed."""
        parts = [f"{name} {_word(before)} → {_word(after)}" for name, (before, after) in self.differences.items()]
        if self.before.error is None and self.after.error is not None:
            parts.append("does not compile any more")
        elif self.before.error is not None and self.after.error is None:
            parts.append("compiles again")
        elif self.code_changed:
            parts.append("other machine code")
        return ", ".join(parts) or "the same code"


def change_of(*, benchmark: str, target: str, toolchain: str, before: Code, after: Code) -> CodeChange:
    """Compare two commits' code; a target that neither side compiles for has not changed."""
    if before.error is not None and after.error is not None:
        finding = StaticFinding.SAME
    else:
        finding = static_finding(before.facts, after.facts, code=(before.code_hash, after.code_hash))
    names = sorted({*before.facts, *after.facts}) if before.facts and after.facts else []
    return CodeChange(
        benchmark=benchmark,
        target=target,
        toolchain=toolchain,
        before=before,
        after=after,
        finding=finding,
        differences={
            name: (before.facts.get(name), after.facts.get(name))
            for name in names
            if before.facts.get(name) != after.facts.get(name)
        },
    )


def _word(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
