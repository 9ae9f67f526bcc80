"""Environments, benchmarks, workloads and series: found, or made on first sight.

Nearly every report meets only known keys, so they are looked up first. Racing reports insert the same new keys at
once, so every insert is ON CONFLICT DO NOTHING followed by another look; rows go in sorted by key, because two
transactions that insert the same keys in different orders would wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.store import lineage
from service.store.bulk import insert_missing
from service.store.tables import Benchmark, Environment, Series, Workload

FACTS = ("flops", "bytes", "tier")  # of a workload: they follow its last report


@dataclass(frozen=True, slots=True, order=True)
class BenchmarkKey:
    """What makes a benchmark, within its repository."""

    name: str
    version: int


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """What must be equal for two points to be comparable; a change in any field starts another series."""

    workload_id: int
    metric: str
    direction: str
    unit: str
    pool: str
    comparable_key: str
    harness_epoch: int


def environment_id(
    session: Session, *, fingerprint: str, comparable_key: str, device: str, facts: Mapping[str, str]
) -> int:
    """The environment with this fingerprint."""
    wanted = select(Environment.id).where(Environment.fingerprint == fingerprint)
    found = session.scalar(wanted)
    if found is None:
        row = {"fingerprint": fingerprint, "comparable_key": comparable_key, "device": device, "facts": dict(facts)}
        insert_missing(session, Environment, [row])
        found = session.scalars(wanted).one()
    return found


def benchmark_ids(
    session: Session, *, repository_id: int, wanted: Mapping[BenchmarkKey, Mapping[str, Any]]
) -> dict[BenchmarkKey, int]:
    """Ids of benchmarks by key; `wanted` holds the other columns of those that are new."""
    found = _find_benchmarks(session, repository_id, wanted)
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        rows = [
            {"repository_id": repository_id, "name": key.name, "version": key.version, **wanted[key]} for key in missing
        ]
        insert_missing(session, Benchmark, rows)
        found = _find_benchmarks(session, repository_id, wanted)
    return found


def _find_benchmarks(
    session: Session, repository_id: int, wanted: Mapping[BenchmarkKey, Any]
) -> dict[BenchmarkKey, int]:
    rows = session.execute(
        select(Benchmark.name, Benchmark.version, Benchmark.id).where(
            Benchmark.repository_id == repository_id, Benchmark.name.in_(sorted({key.name for key in wanted}))
        )
    )
    return {BenchmarkKey(name, version): row_id for name, version, row_id in rows}


def workload_ids(
    session: Session, *, wanted: Mapping[tuple[int, str], Mapping[str, Any]]
) -> dict[tuple[int, str], int]:
    """Ids of workloads by (benchmark, key).

    FLOPs, bytes and tier follow the last report: the first two turn seconds into TFLOP/s when shown, and a corrected
    formula must show at once, for old points as well.
    """
    found = _find_workloads(session, wanted)
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        insert_missing(session, Workload, [{"benchmark_id": key[0], "key": key[1], **wanted[key]} for key in missing])
        found = _find_workloads(session, wanted)
    corrected = [
        {"id": row_id} | {fact: wanted[key][fact] for fact in FACTS}
        for key, (row_id, facts) in sorted(found.items())
        if key in wanted and facts != tuple(wanted[key][fact] for fact in FACTS)
    ]
    if corrected:
        session.execute(update(Workload), corrected)
    return {key: row_id for key, (row_id, _) in found.items()}


def _find_workloads(
    session: Session, wanted: Mapping[tuple[int, str], Any]
) -> dict[tuple[int, str], tuple[int, tuple[Any, ...]]]:
    rows = session.execute(
        select(Workload.benchmark_id, Workload.key, Workload.id, *(getattr(Workload, fact) for fact in FACTS)).where(
            Workload.benchmark_id.in_(sorted({owner for owner, _ in wanted}))
        )
    )
    return {(owner, key): (row_id, tuple(facts)) for owner, key, row_id, *facts in rows}


def series_ids(session: Session, *, repository_id: int, wanted: set[SeriesKey]) -> dict[SeriesKey, int]:
    """Ids of series by key. New ones are linked to their kin once their measurements are there (`lineage.relink`)."""
    if not wanted:
        return {}
    found = _find(session, wanted)
    missing = sorted(wanted - found.keys())
    if missing:
        lineage.lock(session, repository_id=repository_id)
        insert_missing(session, Series, [{"repository_id": repository_id, **_columns(key)} for key in missing])
        found = _find(session, wanted)
    return found


def _columns(key: SeriesKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in SeriesKey.__slots__}


def _find(session: Session, wanted: set[SeriesKey]) -> dict[SeriesKey, int]:
    columns = [getattr(Series, name) for name in SeriesKey.__slots__]
    rows = session.execute(
        select(*columns, Series.id).where(Series.workload_id.in_(sorted({key.workload_id for key in wanted})))
    )
    by_key = {SeriesKey(*row[:-1]): int(row[-1]) for row in rows}
    return {key: by_key[key] for key in wanted if key in by_key}
