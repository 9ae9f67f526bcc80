"""What a use case asks of its caller once the transaction has been committed.

Nothing is rung or sent from inside a transaction: a doorbell that outruns its row finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Aftermath:
    """Runs to ring for, bisections to advance, and whether the outbox has something to deliver."""

    runs: list[tuple[str, int]] = field(default_factory=list)  # (pool, run id)
    deliver: bool = False

    def add(self, other: Aftermath) -> None:
        """Take over what another use case asks for."""
        self.runs.extend(other.runs)
        self.deliver = self.deliver or other.deliver
