"""How loudly a change is told: by its size, and by how far it reaches."""

from __future__ import annotations

import pytest

from service.contract import Tier
from service.domain.severity import Reach, StepImpact, in_words, rate


@pytest.mark.parametrize(
    ("effect", "reach", "severity", "why"),
    [
        (0.06, Reach(4, 40), "medium", "4 of 40 series"),
        (0.06, Reach(10, 40), "high", "raised: 10 of 40 series"),
        (0.06, Reach(1, 40), "medium", "1 of 40 series"),  # one shape that every push measures is no small thing
        (0.12, Reach(1, 40, tier=Tier.NIGHTLY), "medium", "lowered: only shapes of the nightly tier"),
        (0.12, Reach(20, 40, tier=Tier.WEEKLY), "low", "lowered: only shapes of the weekly tier"),
        (0.12, Reach(1, 40, (StepImpact("decode", 0.004, 0, 8),), Tier.WEEKLY), "high", "1 of 40 series"),
        (0.06, Reach(1, 1), "medium", "1 of 1 series"),  # the only series of a small suite is not far reach
        (0.35, Reach(30, 40), "critical", "raised"),  # there is nothing above
        (0.02, Reach(1, 40, tier=Tier.WEEKLY), "low", "lowered"),  # and nothing below
        (0.06, Reach(1, 40, (StepImpact("decode", 0.018, 0, 8),)), "high", "raised: +1.8 % of the step of decode"),
        (0.06, Reach(1, 40, (StepImpact("decode", 0.004, 0, 8),)), "medium", "1 of 40 series"),
        (-0.12, Reach(4, 40), "high", "-12.0 %"),
    ],
)
def test_size_and_reach_decide_together_and_say_why(effect, reach, severity, why):
    rating = rate(effect, reach)
    assert rating.severity == severity
    assert why in rating.reason


def test_a_step_with_unknown_kernels_gives_an_upper_bound_and_says_so():
    assert str(StepImpact("decode", 0.05, 6, 8)) == "at most +5.0 % of the step of decode, of 2 of its 8 kernels"


def test_an_improvement_is_nobodys_incident():
    assert in_words("critical", gain=True) == "very large gain"
    assert in_words("critical", gain=False) == "critical"
