"""What a report must be like to be taken in."""

from dataclasses import replace

import pytest

from service.contract import (
    CONTRACT_VERSION,
    EnvironmentReport,
    MeasurementReport,
    MeasurementStatus,
    RunReport,
    SampleBlock,
)
from service.domain.reports import ReportRefusedError, check_report

SHA = "a" * 40
BLOCK = SampleBlock(0, 0, (1e-3,), (1e-3,), 1e-3, 1e-3)
POINT = MeasurementReport(
    sha=SHA,
    benchmark="k",
    family="f",
    version=1,
    problem="p",
    device="cuda",
    workload="k[n=1]@cold",
    axes={"n": 1},
    control=False,
    flops=1.0,
    bytes=1.0,
    status=MeasurementStatus.OK,
    value_s=1e-3,
    half_width_s=1e-5,
    blocks=(BLOCK,),
)
REPORT = RunReport(
    contract_version=CONTRACT_VERSION,
    run_id=1,
    attempt=1,
    lease_token="t",
    started_at=1.0,
    finished_at=2.0,
    device_s=1.0,
    harness_epoch=1,
    environment=EnvironmentReport("NVIDIA H200", "cuda-1", "f", {}),
)


def check(**changes):
    check_report(replace(REPORT, measurements=(replace(POINT, **changes),)), shas=frozenset({SHA}))


@pytest.mark.parametrize("metric", ["time", "time_cold", "time_plain", "time_cold_plain"])
def test_a_time_however_it_was_taken_comes_in_seconds_and_with_its_samples(metric):
    check(metric=metric)
    with pytest.raises(ReportRefusedError, match="seconds"):
        check(metric=metric, unit="ms")
    with pytest.raises(ReportRefusedError, match="samples"):
        check(metric=metric, blocks=())


def test_another_metric_needs_neither():
    check(metric="registers", unit="count", blocks=(), half_width_s=None)
