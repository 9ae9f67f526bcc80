"""What a change does to a model's step, from the store's own figures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.domain.mixes import load_mixes
from service.store import tables as t
from service.store.impact import reach_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
(MIX,) = (mix for mix in load_mixes() if "Llama-3-8B decode" in mix.name)


class Shop:
    """A repository that measures kernels of a model's step, 1 ms each."""

    def __init__(self, session):
        self.session = session
        self.repository = self.add(t.Repository(name="acme/k", clone_url="file:///n", webhook_secret="s" * 32))
        self.commits = [
            self.add(
                t.GitCommit(repository_id=self.repository.id, sha=f"{k:040x}", parents=[], position=k, author="Ada",
                            author_email="a@example.org", subject="s", committed_at=NOW)
            )
            for k in range(2)
        ]  # fmt: skip
        self.run = self.add(
            t.Run(repository_id=self.repository.id, commit_id=self.commits[0].id, pool="gpu", reason="push",
                  state="reported", dedupe_key="one")
        )  # fmt: skip
        self.regression = self.add(
            t.Regression(repository_id=self.repository.id, direction="regression", state="confirmed", effect=0.5,
                         good_commit_id=self.commits[0].id, bad_commit_id=self.commits[1].id, effect_low=0.4,
                         effect_high=0.6)
        )  # fmt: skip

    def add(self, row):
        self.session.add(row)
        self.session.flush()
        return row

    def series(self, term, *, name, value_s=1e-3):
        problem, _, rest = term.problem_key.partition("[")
        axes = {key: int(value) for key, value in (pair.split("=") for pair in rest[:-1].split(","))}
        benchmark = self.add(
            t.Benchmark(repository_id=self.repository.id, name=f"{name}_{term.problem_key}", version=1, family=problem,
                        problem=problem, device=MIX.device, control=False)
        )  # fmt: skip
        workload = self.add(
            t.Workload(benchmark_id=benchmark.id, key=term.problem_key, axes=axes, flops=1.0, bytes=1.0)
        )
        series = self.add(
            t.Series(repository_id=self.repository.id, workload_id=workload.id, metric="time", direction="lower",
                     unit="s", pool="gpu", comparable_key="k", harness_epoch=1)
        )  # fmt: skip
        self.add(
            t.Measurement(run_id=self.run.id, series_id=series.id, commit_id=self.commits[0].id, status="ok", n=1,
                          value_s=value_s, clock="wall", measured_at=NOW, wall_s=[value_s], cpu_s=[value_s],
                          block_size=[1], block_process=[0], block_order=[0], block_canary_wall_s=[1.0],
                          block_canary_cpu_s=[1.0])
        )  # fmt: skip
        return series

    def move(self, series, effect):
        self.add(
            t.ChangePoint(series_id=series.id, commit_id=self.commits[1].id, previous_commit_id=self.commits[0].id,
                          regression_id=self.regression.id, direction="regression", detector="d", detector_version=1,
                          before_s=1e-3, after_s=1e-3 * (1 + effect), effect=effect, effect_low=effect,
                          effect_high=effect, z=9.0, p_value=0.0)
        )  # fmt: skip

    def reach(self):
        return reach_of(self.session, regression_id=self.regression.id, repository_id=self.repository.id)


@pytest.fixture
def shop(session):
    return Shop(session)


def of_this_mix(reach):
    return [step for step in reach.steps if step.mix == MIX.name]


def test_a_kernel_of_the_step_counts_by_its_share_of_the_step(shop):
    series = {term.problem_key: shop.series(term, name="ours") for term in MIX.terms}
    first = MIX.terms[0]
    shop.move(series[first.problem_key], 0.5)
    (step,) = of_this_mix(shop.reach())
    assert step.effect == pytest.approx(0.5 * first.count / sum(term.count for term in MIX.terms))
    assert step.missing == 0
    assert shop.reach().of_series == len(MIX.terms)


def test_an_implementation_that_the_step_would_not_choose_changes_no_step(shop):
    first = MIX.terms[0]
    shop.series(first, name="fast", value_s=5e-4)
    slow = shop.series(first, name="slow")
    shop.move(slow, 0.5)
    assert shop.reach().steps == ()
    assert shop.reach().series == 1


def test_kernels_that_are_not_measured_make_it_an_upper_bound(shop):
    first = MIX.terms[0]
    shop.move(shop.series(first, name="ours"), 0.5)
    (step,) = of_this_mix(shop.reach())
    assert step.missing == len(MIX.terms) - 1
    assert str(step).startswith("at most +50.0 %")


def test_a_change_is_of_the_most_watched_tier_among_its_workloads(shop):
    series = [shop.series(term, name="ours") for term in MIX.terms[:2]]
    for one, tier in zip(series, ("weekly", "nightly"), strict=True):
        shop.session.get_one(t.Workload, one.workload_id).tier = tier
    shop.move(series[0], 0.5)
    assert shop.reach().tier == "weekly"
    shop.move(series[1], 0.5)
    assert shop.reach().tier == "nightly"
