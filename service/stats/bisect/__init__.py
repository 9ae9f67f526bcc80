"""Bisection by belief: which commit made it slower, or that none did."""

from service.stats.bisect.engine import next_step, next_steps, outlook, posterior
from service.stats.bisect.types import (
    BisectProblem,
    Blame,
    Candidate,
    Failure,
    FailureKind,
    Observation,
    Outcome,
    Outlook,
    Phase,
    Posterior,
    Probe,
    Reason,
    Verdict,
    Wait,
)

__all__ = [
    "BisectProblem",
    "Blame",
    "Candidate",
    "Failure",
    "FailureKind",
    "Observation",
    "Outcome",
    "Outlook",
    "Phase",
    "Posterior",
    "Probe",
    "Reason",
    "Verdict",
    "Wait",
    "next_step",
    "next_steps",
    "outlook",
    "posterior",
]
