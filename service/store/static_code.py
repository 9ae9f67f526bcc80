"""Facts of machine code: written once per commit, implementation, target and toolchain; and whose code is equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.bulk import insert_missing
from service.store.tables import Measurement, StaticCode

Code = tuple[str, str]  # hashes of the machine code and of the recipe around it


def write(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert what is new, in the order of its key: what is there already is exact, and stays."""
    key = ("commit_id", "benchmark_id", "target", "toolchain")
    insert_missing(session, StaticCode, sorted(rows, key=lambda row: tuple(row[name] for name in key)))


def codes_of(
    session: Session, *, series_ids: Collection[int], commit_ids: Collection[int]
) -> dict[tuple[int, int], frozenset[Code]]:
    """The code of each series at each commit, as its measurements have read it; more than one is a contradiction.

    A series holds one machine class, toolchain and benchmark version, so that hashes within it can be compared.
    """
    rows = session.execute(
        select(
            Measurement.series_id,
            Measurement.commit_id,
            Measurement.code_hash,
            Measurement.static_facts["recipe_hash"].astext,
        )
        .where(
            Measurement.series_id.in_(list(series_ids)),
            Measurement.commit_id.in_(list(commit_ids)),
            Measurement.code_hash.is_not(None),
        )
        .distinct()
    )
    found: dict[tuple[int, int], set[Code]] = {}
    for series_id, commit_id, code_hash, recipe_hash in rows:
        if code_hash and recipe_hash:
            found.setdefault((series_id, commit_id), set()).add((code_hash, recipe_hash))
    return {key: frozenset(codes) for key, codes in found.items()}


def identical_series(session: Session, *, series_ids: Collection[int], commit_ids: tuple[int, int]) -> frozenset[int]:
    """The series whose code is known, and the same, at both commits: what differs between them cannot be the code."""
    codes = codes_of(session, series_ids=series_ids, commit_ids=commit_ids)
    first, second = commit_ids
    return frozenset(
        series_id
        for series_id in series_ids
        if len(codes.get((series_id, first), ())) == 1
        and codes.get((series_id, first)) == codes.get((series_id, second))
    )
