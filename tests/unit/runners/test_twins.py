"""The two sides of an A/A run become one report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runners.measure.team import Subject
from runners.twins import TWIN, merged, merged_failures, twin_of
from service.contract import (
    CommitFailure,
    FailureKind,
    FailureStage,
    MeasurementReport,
    MeasurementStatus,
    RunFailure,
    SampleBlock,
)

SHA = "a" * 40


def block(process):
    return SampleBlock(process, 0, (1e-3,), (1e-3,), 1e-4, 1e-4)


def side(sha, value_s, *, workload="k[n=1]", **changes):
    return MeasurementReport(
        sha=sha,
        benchmark="k",
        family="f",
        version=1,
        problem="p",
        device="cpu",
        workload=workload,
        axes={},
        control=False,
        flops=1.0,
        bytes=1.0,
        status=changes.pop("status", MeasurementStatus.OK),
        value_s=value_s,
        half_width_s=None if value_s is None else 3e-5,
        blocks=(block(0), block(1)),
        **changes,
    )


def test_a_twin_is_the_same_suite_under_another_name():
    subject = Subject(SHA, Path("/suite"), Path("/build"))
    twin = twin_of(subject)
    assert twin.sha != subject.sha
    assert (twin.suite_dir, twin.build_dir) == (subject.suite_dir, subject.build_dir)


def test_the_processes_of_both_sides_are_kept_pair_by_pair():
    (found,) = merged([side(SHA, 4e-3), side(SHA + TWIN, 1e-3, flags=("contended",), clock="cpu")], SHA)
    assert found.sha == SHA
    assert [b.process for b in found.blocks] == [0, 2, 1, 3]
    assert found.value_s == pytest.approx(2e-3)
    assert found.half_width_s == pytest.approx(3e-5 / 2**0.5)
    assert (found.clock, found.flags) == ("cpu", ("contended",))


def test_a_side_that_failed_is_what_is_reported():
    failed = side(SHA + TWIN, None, status=MeasurementStatus.CRASHED, error="it died")
    (found,) = merged([side(SHA, 1e-3), failed], SHA)
    assert (found.sha, found.status, found.error) == (SHA, MeasurementStatus.CRASHED, "it died")
    (turned,) = merged([replace(failed, sha=SHA), side(SHA + TWIN, 1e-3)], SHA)
    assert turned.status is MeasurementStatus.CRASHED


def test_a_workload_of_one_side_alone_is_no_comparison():
    assert merged([side(SHA, 1e-3)], SHA) == ()


def test_what_broke_one_side_is_the_commits_failure_once():
    failure = RunFailure(FailureStage.BUILD, FailureKind.PERMANENT, "no compiler")
    found = merged_failures([CommitFailure(SHA + TWIN, failure), CommitFailure(SHA, failure)], SHA)
    assert found == (CommitFailure(SHA, failure),)
