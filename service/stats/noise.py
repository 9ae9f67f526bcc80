"""Noise that is known before the search: hosts with an offset of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_SWITCHES = 4
"""Times a host must alternate with another before its offset can be told from a level change."""


def remove_host_offsets(
    points: NDArray[np.float64], hosts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], dict[int, float]]:
    """Take each host's own offset out of a series; returns the series and the relative offsets.

    Log differences of neighbours measured on two hosts equal the difference of their offsets plus noise; a
    level change is in one difference only. Least absolute deviations over these differences (iterated
    weighted least squares, Schlossmacher 1973) is therefore blind to steps. A host that alternates fewer than
    `MIN_SWITCHES` times keeps its values: its offset and a change at the switch are one thing, and the
    verdict says "environment".
    """
    if hosts.shape != points.shape:
        raise ValueError(f"{hosts.size} hosts for {points.size} points")
    names, code = np.unique(hosts, return_inverse=True)
    if names.size < 2:
        return points, {}
    at = np.flatnonzero(code[1:] != code[:-1])
    switches = np.bincount(code[at], minlength=names.size) + np.bincount(code[at + 1], minlength=names.size)
    known = switches >= MIN_SWITCHES
    use = at[known[code[at]] & known[code[at + 1]]]
    if use.size < MIN_SWITCHES:
        return points, {}
    design = np.zeros((use.size, names.size))
    design[np.arange(use.size), code[use + 1]] = 1
    design[np.arange(use.size), code[use]] = -1
    logs = np.log(points)
    target = logs[use + 1] - logs[use]
    weight: NDArray[np.floating] = np.ones(use.size)
    offset: NDArray[np.floating] = np.zeros(names.size)
    for _ in range(20):
        offset = np.linalg.lstsq(design * weight[:, None], target * weight, rcond=None)[0]
        residual = np.abs(target - design @ offset)
        weight = 1 / np.sqrt(np.maximum(residual, 0.1 * np.median(residual) + 1e-9))
    offset = np.where(known, offset - np.average(offset[known], weights=np.bincount(code)[known]), 0.0)
    removed = {int(h): float(np.expm1(o)) for h, o, k in zip(names, offset, known, strict=True) if k}
    return points * np.exp(-offset[code]), removed
