"""When the machine moves and not the commit: the word is "environment", nobody is told, the baseline starts anew."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.contract import RunReason
from service.store.tables import Benchmark, ChangePoint, Series, Workload
from service.usecases.confirmation import CONFIRM_ATTEMPTS
from tests.story import Planted, Story

FAMILIES = ("gemm", "attention", "moe", "norm", "quant", "scan")
WORKLOADS = {f"{family}_f32[n={n}]": (f"{family}_f32", family, n * 1e-6) for family in FAMILIES for n in (700, 1500)}
VENDOR = {"gemm_f32_openblas[n=700]": ("gemm_f32_openblas", "gemm", 0.65e-3)}


def tell(sessions, *, seed=51, length=24, workloads=None, **planted) -> Story:
    plans = [Planted()] * length
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    story = Story(sessions, plans, seed=seed, options={"workloads": workloads or WORKLOADS | VENDOR})
    for tip in (1, 3, 5, 7):
        story.push(tip)
    return story


def words(story) -> dict[str, str]:
    """Workload -> last word, of every kernel's series."""
    with story.sessions() as session:
        rows = session.execute(
            select(Workload.key, Series.verdict)
            .join(Series, Series.workload_id == Workload.id)
            .join(Benchmark, Benchmark.id == Workload.benchmark_id)
            .where(Benchmark.control.is_(False))
        )
        return dict(rows.all())


def restarts(story) -> int:
    with story.sessions() as session:
        rows = session.scalars(select(ChangePoint).where(ChangePoint.restarts_baseline)).all()
        assert all(row.withdrawn_at is not None and row.regression_id is None for row in rows)
        return len(rows)


def test_a_move_of_most_families_at_once_is_the_environment_and_restarts_the_baseline(sessions):
    story = tell(sessions)
    story.device.host_factor = dict.fromkeys(FAMILIES[:4], 1.12)
    story.push(9)
    assert story.told() == []
    moved = {key for key, word in words(story).items() if word == "environment"}
    assert moved == {key for key, (_, family, _) in WORKLOADS.items() if family in FAMILIES[:4]}
    assert restarts(story) == 8
    for tip in (11, 13, 15):
        story.push(tip)
    assert story.told() == []
    assert set(words(story).values()) == {"no_change"}
    assert story.run_count(RunReason.CONFIRM) <= CONFIRM_ATTEMPTS  # of one pair of commits


def test_a_real_loss_behind_the_new_baseline_is_still_found(sessions):
    story = tell(sessions, c14=Planted({"moe": 1.15}))
    story.device.host_factor = dict.fromkeys(FAMILIES, 1.12)
    for tip in (9, 11, 13, 15, 17):
        story.push(tip)
    assert story.found() == {14: "attributed"}


def test_a_commit_that_truly_moves_most_families_is_proved_by_the_interleaved_run(sessions):
    story = tell(sessions, c9=Planted(dict.fromkeys(FAMILIES[:4], 1.15)))
    for tip in (9, 11):
        story.push(tip)
    assert story.found() == {9: "attributed"}


def test_a_new_driver_where_one_family_moves_takes_the_blame_until_the_commit_is_proved(sessions):
    story = tell(sessions)
    story.device.host_factor, story.device.facts = {"moe": 1.12}, {"cpu": "simulated", "driver": "580"}
    story.push(9)
    assert story.told() == []
    found = words(story)
    assert {key for key, word in found.items() if word == "environment"} == {"moe_f32[n=700]", "moe_f32[n=1500]"}
    for tip in (11, 13, 15):
        story.push(tip)
    assert story.told() == []
    assert set(words(story).values()) == {"no_change"}


def test_a_loss_that_comes_with_a_new_driver_is_told_when_the_commit_is_proved(sessions):
    story = tell(sessions, c9=Planted({"moe": 1.15}))
    story.device.facts = {"cpu": "simulated", "driver": "580"}
    for tip in (9, 11):
        story.push(tip)
    assert story.found() == {9: "attributed"}


def test_a_vendor_library_that_moves_too_takes_the_blame_from_its_problem(sessions):
    story = tell(sessions)
    story.device.host_factor = {"gemm": 1.12, "gemm_f32_openblas": 1.12}
    story.push(9)
    assert story.told() == []
    assert words(story)["gemm_f32[n=700]"] == "environment"


def test_a_step_that_lasts_though_its_two_commits_are_equal_is_the_machines(sessions):
    story = tell(sessions, workloads={"moe_f32[n=700]": WORKLOADS["moe_f32[n=700]"]})
    story.device.host_factor = {"moe": 1.12}
    for tip in (9, 11, 13, 15, 17, 19, 21):
        story.push(tip)
    assert story.told() == []
    assert restarts(story) == 1
    assert words(story) == {"moe_f32[n=700]": "no_change"}


@pytest.mark.parametrize(
    ("field", "word", "said"),
    [
        ("version", "not_comparable", "new benchmark version: version 1 → 2"),
        ("harness_epoch", "environment", "new environment: harness epoch 1 → 2"),
    ],
)
def test_a_new_version_or_epoch_is_a_new_series_that_is_not_compared(sessions, field, word, said):
    story = tell(sessions, c9=Planted(dict.fromkeys(FAMILIES, 1.3)))
    setattr(story.device, field, 2)
    story.order(9)
    story.analyse(story.measure())
    assert story.told() == []
    with story.sessions() as session:
        young = session.scalars(select(Series).where(Series.predecessor_id.is_not(None))).all()
        assert len(young) == len(WORKLOADS) + len(VENDOR)
        told = [series for series in young if series.verdict is not None]
        assert {series.verdict for series in told} == {word}
        assert all(said in series.verdict_reason for series in told)
