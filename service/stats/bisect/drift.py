"""The machine's mood: one offset a block, a slow drift within a session, and nothing shared between sessions.

A session is one machine in one environment during this bisection; a batch of an earlier day is a session of its own.
Within a session the offsets follow an Ornstein-Uhlenbeck process (Rasmussen and Williams, Gaussian Processes for
Machine Learning, ch. 4.2.1), whose size is learnt from the data.  A large one leaves only the differences within a
block; a small one lets neighbouring batches help each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.stats.bisect.evidence import Evidence, Floats

CORRELATION_RUNS = 90.0  # after so many runs the drift is forgotten
SESSION_SDS = 100.0  # a session's level is unknown: so many noise sds
SIZES = (0.2, 0.5, 1.2, 3.0, 8.0)  # sd of the drift in noise sds
SIZE_PRIOR = (0.1, 0.3, 0.3, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Prior covariance of the block offsets in units of the noise variance."""

    covariance: Floats
    size: float


def offsets(evidence: Evidence, size: float) -> Offsets:
    """The prior for a drift of `size` noise sds."""
    time, session = evidence.block_time, evidence.block_session
    same = session[:, None] == session[None, :]
    near = np.exp(-np.abs(time[:, None] - time[None, :]) / CORRELATION_RUNS)
    covariance = same * (size**2 * near + SESSION_SDS**2) + 1e-6 * np.eye(len(time))
    return Offsets(covariance, size)
