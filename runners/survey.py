"""The survey of a commit's machine code: exact facts of each implementation for each target, as they are stored.

CUDA sources are compiled for every architecture whatever device this host has (`measure.cuda_code`); the object code of
CPU kernels was read when they were measured. A survey never fails a run: what could not be read is said in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runners.device.cuda.nvrtc import TARGETS
from runners.errors import ChildError
from runners.measure.houses import NotMeasurableError
from runners.measure.team import SubjectBrokenError, Team
from service.contract import MeasurementReport, StaticReport

WIDEST_TIER = "weekly"
ABOUT = ("benchmark", "family", "version", "problem", "device", "control")


def survey_cuda(
    team: Team, sha: str, *, wanted: Callable[[str], bool] = lambda _name: True
) -> tuple[tuple[StaticReport, ...], str | None]:
    """Facts of every wanted CUDA implementation of a commit that has sources, and why some or all of them lack."""
    found: dict[str, StaticReport] = {}
    missing: dict[str, None] = {}
    try:
        listed = {about["benchmark"]: about for about in team.discover(sha, WIDEST_TIER, device="cuda")}
        for name, about in listed.items():
            if wanted(name):
                static = team.static(sha, about["workload"])
                if "static_missing" in static:
                    missing[str(static["static_missing"])] = None
                found |= {f"{name} {report.target}": report for report in reports_of(sha, about, static)}
    except (SubjectBrokenError, NotMeasurableError, ChildError) as error:
        missing[f"the CUDA sources could not be listed: {error}"] = None
    return tuple(found.values()), "; ".join(missing) or None


def survey_cpu(
    team: Team, sha: str, *, wanted: Callable[[str], bool] = lambda _name: True
) -> tuple[tuple[StaticReport, ...], dict[str, str]]:
    """Build every wanted CPU implementation of a commit and read its object code; why each that lacks it does.

    Raises SubjectBrokenError when the suite cannot be listed.
    """
    every = team.discover(sha, WIDEST_TIER, device="cpu")
    listed = {about["benchmark"]: about for about in every if wanted(about["benchmark"])}
    unbuilt = team.build(sha, tuple(about["workload"] for about in listed.values()))
    found: list[StaticReport] = []
    missing: dict[str, str] = {}
    for name, about in listed.items():
        if about["workload"] in unbuilt:
            missing[name] = f"cannot be built: {unbuilt[about['workload']].splitlines()[0]}"
        else:
            found += reports_of(sha, about, team.static(sha, about["workload"]))
    return tuple(found), missing


def reports_of_measured(measurements: Iterable[MeasurementReport]) -> tuple[StaticReport, ...]:
    """The facts that came with measured workloads, once for each implementation and target of each commit."""
    found: dict[tuple[str, str, str], StaticReport] = {}
    for one in measurements:
        about = {name: getattr(one, name) for name in ABOUT}
        for report in reports_of(one.sha, about, {**one.static, "code_hash": one.code_hash}):
            found.setdefault((report.sha, report.benchmark, report.target), report)
    return tuple(found.values())


def reports_of(sha: str, about: Mapping[str, Any], static: Mapping[str, Any]) -> list[StaticReport]:
    """One report per target from an implementation's flat facts; none where it has no machine code of its own."""
    if about["device"] == "cpu":
        if "text_bytes" not in static:
            return []
        facts = {"text_bytes": float(static["text_bytes"])}
        return [_report(sha, about, static, target="cpu", code_hash=static.get("code_hash"), facts=facts)]
    reports = []
    for target in TARGETS:
        here = {
            name.removeprefix(f"{target}."): value for name, value in static.items() if name.startswith(f"{target}.")
        }
        if here:
            facts = {name: float(value) for name, value in here.items() if isinstance(value, float | int)}
            code_hash, error = here.get("code_hash"), here.get("error")
            reports.append(_report(sha, about, static, target=target, code_hash=code_hash, facts=facts, error=error))
    return reports


def _report(
    sha: str,
    about: Mapping[str, Any],
    static: Mapping[str, Any],
    *,
    target: str,
    code_hash: str | None,
    facts: dict[str, float],
    error: str | None = None,
) -> StaticReport:
    return StaticReport(
        sha=sha,
        benchmark=str(about["benchmark"]),
        family=str(about["family"]),
        version=int(about["version"]),
        problem=str(about["problem"]),
        device=str(about["device"]),
        control=bool(about["control"]),
        target=target,
        toolchain=str(static.get("toolchain", "unknown")),
        code_hash=code_hash,
        recipe_hash=static.get("recipe_hash"),
        facts=facts,
        error=error,
    )
