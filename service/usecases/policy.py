"""What counts as a change: the policy that detection and confirmation share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """The relative change below which nothing is suspected or confirmed, and how sure a confirmation must be."""

    min_effect: float = 0.02
    confidence: float = 0.99
