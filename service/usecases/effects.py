"""Effects between two commits that were measured interleaved in one run, from the store's raw blocks.

Also what such an effect says of a suspicion (`rule`): confirmed, taken back with the reason, or still unsure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.contract import MeasurementStatus
from service.stats.paired import Blocks, PairedEffect, paired_effect
from service.store.points import RawMeasurement


class Ruling(StrEnum):
    """What an interleaved run says of a suspicion."""

    CONFIRMED = "confirmed"
    TAKEN_BACK = "taken_back"
    ENVIRONMENT = "environment"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Word:
    """A ruling and its reason, as a sentence."""

    ruling: Ruling
    reason: str


IDENTICAL = "same (identical code): machine code, recipe and libraries are equal, so only the machine can differ"


def rule_identical(effect: PairedEffect | None) -> Word:
    """Take a suspicion back because both commits run the very same code; what an audit has timed is told, no more."""
    if effect is None:
        return Word(Ruling.TAKEN_BACK, f"{IDENTICAL}; not timed")
    size = f"{effect.effect:+.1%} ({effect.low:+.1%} to {effect.high:+.1%})"
    return Word(Ruling.TAKEN_BACK, f"{IDENTICAL}; timed as an audit: {size}")


def rule(suspected: float, effect: PairedEffect | None, *, controls: Sequence[PairedEffect], floor: float) -> Word:
    """Say what an interleaved effect makes of a suspected one (both relative)."""
    if effect is None:
        return Word(Ruling.UNSURE, "the interleaved run has no figure of both commits")
    size = f"{effect.effect:+.1%} ({effect.low:+.1%} to {effect.high:+.1%}) interleaved"
    if agrees(suspected, effect, floor=floor):
        if any(same_move(effect, control) for control in controls):
            why = f"{size}, but the vendor's library moved with it: the machine, not the commit"
            return Word(Ruling.ENVIRONMENT, why)
        return Word(Ruling.CONFIRMED, size)
    if -floor < effect.low and effect.high < floor:
        return Word(Ruling.TAKEN_BACK, f"{size}: within {floor:.1%}")
    if effect.effect * suspected < 0:
        return Word(Ruling.TAKEN_BACK, f"{size}: the other way")
    return Word(Ruling.UNSURE, f"{size}: neither proved nor excluded")


def agrees(suspected: float, measured: PairedEffect, *, floor: float) -> bool:
    """Whether a paired effect proves a suspicion: same sign, certain, and at least the floor."""
    return measured.excludes_zero and measured.effect * suspected > 0 and abs(measured.effect) >= floor


def same_move(effect: PairedEffect, control: PairedEffect) -> bool:
    """Whether a vendor control moved the same way, for certain, by at least half as much."""
    moved = control.excludes_zero and effect.effect * control.effect > 0
    return moved and abs(control.effect) >= 0.5 * abs(effect.effect)


def paired_effects(
    raw: Sequence[RawMeasurement], *, base_id: int, head_id: int, confidence: float
) -> dict[int, PairedEffect]:
    """Return per series the effect of head over base in one interleaved run, on the stricter clock of the two."""
    clocks = shared_clocks(raw)
    sides: dict[int, dict[int, RawMeasurement]] = {}
    for measurement in raw:
        if measurement.status == MeasurementStatus.OK:
            sides.setdefault(measurement.series_id, {})[measurement.commit_id] = measurement
    effects: dict[int, PairedEffect] = {}
    for series_id, by_commit in sides.items():
        if base_id not in by_commit or head_id not in by_commit:
            continue
        base, head = by_commit[base_id], by_commit[head_id]
        clock = clocks[base.run_id, series_id]
        effect = paired_effect(blocks_on(base, clock), blocks_on(head, clock), confidence=confidence)
        if effect is not None:
            effects[series_id] = effect
    return effects


def effect_of_twins(measurement: RawMeasurement, *, confidence: float) -> PairedEffect | None:
    """Return the effect of a commit over itself in one A/A run, whose processes 2k and 2k+1 were interleaved."""
    if measurement.status != MeasurementStatus.OK:
        return None
    every = blocks_on(measurement, measurement.clock)
    return paired_effect(_side(every, 0), _side(every, 1), confidence=confidence)


def _side(blocks: Blocks, side: int) -> Blocks:
    rows = zip(blocks.process, blocks.median_s, blocks.canary_s, strict=True)
    mine = [(process // 2, median_s, canary_s) for process, median_s, canary_s in rows if process % 2 == side]
    process, median_s, canary_s = zip(*mine, strict=True) if mine else ((), (), ())
    return Blocks(process=process, median_s=median_s, canary_s=canary_s)


def shared_clocks(raw: Sequence[RawMeasurement]) -> dict[tuple[int, int], str]:
    """Return the one clock of each run and series: thread CPU time as soon as one side asks for it."""
    clocks: dict[tuple[int, int], str] = {}
    for measurement in raw:
        key = (measurement.run_id, measurement.series_id)
        if measurement.clock == "cpu" or key not in clocks:
            clocks[key] = measurement.clock
    return clocks


def blocks_on(measurement: RawMeasurement, clock: str) -> Blocks:
    """Return a measurement's blocks on one clock, kernel and canary alike."""
    on_cpu = clock == "cpu"
    return Blocks(
        process=measurement.block_process,
        median_s=measurement.median_cpu_s if on_cpu else measurement.median_wall_s,
        canary_s=measurement.canary_cpu_s if on_cpu else measurement.canary_wall_s,
    )


def pooled_effect(
    raw: Sequence[RawMeasurement], *, base_id: int, head_id: int, confidence: float
) -> PairedEffect | None:
    """Return the effect of head over base in one series, over all runs that measured both; None without three pairs.

    A pair is of processes of one run; runs are never compared with each other.
    """
    clocks = shared_clocks(raw)
    sides: dict[int, dict[int, RawMeasurement]] = {base_id: {}, head_id: {}}
    for measurement in raw:
        if measurement.status == MeasurementStatus.OK and measurement.commit_id in sides:
            sides[measurement.commit_id][measurement.run_id] = measurement
    shared = sorted(sides[base_id].keys() & sides[head_id].keys())
    base, head = (
        _joined([blocks_on(mine[run_id], clocks[run_id, mine[run_id].series_id]) for run_id in shared])
        for mine in (sides[base_id], sides[head_id])
    )
    return paired_effect(base, head, confidence=confidence)


def _joined(runs: Sequence[Blocks]) -> Blocks:
    """Several runs' blocks as one, their processes kept apart."""
    stride = 1 + max((process for run in runs for process in run.process), default=0)
    return Blocks(
        process=[number * stride + process for number, run in enumerate(runs) for process in run.process],
        median_s=[value for run in runs for value in run.median_s],
        canary_s=[value for run in runs for value in run.canary_s],
    )
