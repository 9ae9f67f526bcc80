"""Reported regressions, improvements and false alarms: the verdict a person reached in the end."""

import json
import math
from pathlib import Path

import pytest

from service.stats.compare import compare
from service.stats.verdict import Better, Floors, Surroundings, Verdict

CASES = json.loads((Path(__file__).parents[2] / "fixtures/cases/reported.json").read_text())["cases"]
EVENT_TIMER_US = 0.5
STEP_IN_UNIT = {"us": EVENT_TIMER_US, "ms": EVENT_TIMER_US / 1e3, "ns": EVENT_TIMER_US * 1e3, "s": EVENT_TIMER_US / 1e6}


def verdict_of(case: dict) -> Verdict:
    sample_sd = None
    if "sample_sd_pct" in case:
        left, right = case["sample_sd_pct"]
        sample_sd = math.sqrt((left**2 + right**2) / 2) / 100
    return compare(
        case["before"],
        case["after"] + case.get("reruns_of_one_commit", []),
        better=Better(case["better"]),
        sample_sd=sample_sd,
        floors=Floors(timer_step=STEP_IN_UNIT.get(case["unit"], 0.0)),
        surroundings=Surroundings(differing=tuple(case.get("differing", ()))),
    ).verdict


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_verdict_on_a_reported_case_is_the_one_people_reached(case):
    assert verdict_of(case) in case.get("accept", [case["verdict"]])
