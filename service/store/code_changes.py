"""Reading findings of machine code: each commit's facts beside those of the nearest commit before it on the line.

They are derived on reading, because a commit between two others may be surveyed after both; the predecessor is the
nearest first-parent commit with facts of the same implementation, target and toolchain.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, select, true
from sqlalchemy.orm import Session, aliased

from service.contract import StaticFinding
from service.domain.code_changes import Code, CodeChange, change_of
from service.store.tables import Benchmark, GitCommit, StaticCode

LIMIT = 500


def of_commit(session: Session, *, commit_id: int) -> tuple[CodeChange, ...]:
    """What a commit changed in the machine code of any implementation; warnings first, unchanged code left out."""
    return _changed(session, StaticCode.commit_id == commit_id)


def of_range(
    session: Session, *, repository_id: int, benchmark: str, good_position: int, bad_position: int
) -> tuple[CodeChange, ...]:
    """The findings of one implementation at the commits after the good end, up to and with the bad end."""
    here = aliased(GitCommit)
    inside = select(here.id).where(
        here.repository_id == repository_id, here.position > good_position, here.position <= bad_position
    )
    return _changed(session, StaticCode.commit_id.in_(inside), Benchmark.name == benchmark)


def of_benchmark(session: Session, *, repository_id: int, benchmark: str) -> tuple[CodeChange, ...]:
    """The newest findings of one implementation along the line, newest first within each kind."""
    return _changed(session, Benchmark.repository_id == repository_id, Benchmark.name == benchmark)


def between(
    session: Session, *, repository_id: int, benchmark: str, base_id: int, head_id: int
) -> tuple[CodeChange, ...]:
    """How one implementation's code differs between two commits, for every target that both were read for."""
    base, head, first, second = aliased(StaticCode), aliased(StaticCode), aliased(GitCommit), aliased(GitCommit)
    statement = (
        select(Benchmark.name, head.target, head.toolchain, *_columns(base, first), *_columns(head, second))
        .select_from(head)
        .join(Benchmark, Benchmark.id == head.benchmark_id)
        .join(second, second.id == head.commit_id)
        .join(
            base,
            (base.benchmark_id == head.benchmark_id)
            & (base.target == head.target)
            & (base.toolchain == head.toolchain),
        )
        .join(first, first.id == base.commit_id)
        .where(
            Benchmark.repository_id == repository_id,
            Benchmark.name == benchmark,
            base.commit_id == base_id,
            head.commit_id == head_id,
        )
        .order_by(head.target)
    )
    return tuple(_change(row) for row in session.execute(statement))


def _changed(session: Session, *conditions: ColumnElement[bool]) -> tuple[CodeChange, ...]:
    """Of the newest facts that match, each beside its predecessor's, those that are not the same."""
    chosen = (
        select(StaticCode.id)
        .join(GitCommit, GitCommit.id == StaticCode.commit_id)
        .join(Benchmark, Benchmark.id == StaticCode.benchmark_id)
        .where(*conditions, GitCommit.position.is_not(None))
        .order_by(GitCommit.position.desc(), StaticCode.id)
        .limit(LIMIT)
        .correlate(None)
    )
    rows = session.execute(_beside_predecessor().where(StaticCode.id.in_(chosen)))
    kept = [change for change in map(_change, rows) if change.finding is not StaticFinding.SAME]
    return tuple(sorted(kept, key=lambda change: change.finding is not StaticFinding.WARNING))


def _beside_predecessor() -> Select[*tuple[Any, ...]]:
    """Walk down the line from each commit to the nearest one with comparable facts, by two unique indexes."""
    earlier, place = aliased(StaticCode), aliased(GitCommit)
    before = (
        select(*(column.label(f"before_{number}") for number, column in enumerate(_columns(earlier, place))))
        .select_from(place)
        .join(earlier, earlier.commit_id == place.id)
        .where(
            place.repository_id == GitCommit.repository_id,
            place.position < GitCommit.position,
            earlier.benchmark_id == StaticCode.benchmark_id,
            earlier.target == StaticCode.target,
            earlier.toolchain == StaticCode.toolchain,
        )
        .order_by(place.position.desc())
        .limit(1)
        .lateral("before")
    )
    return (
        select(Benchmark.name, StaticCode.target, StaticCode.toolchain, *before.c, *_columns(StaticCode, GitCommit))
        .select_from(StaticCode)
        .join(GitCommit, GitCommit.id == StaticCode.commit_id)
        .join(Benchmark, Benchmark.id == StaticCode.benchmark_id)
        .join(before, true())
        .order_by(GitCommit.position.desc(), Benchmark.name, StaticCode.target)
    )


def _columns(code: Any, commit: Any) -> tuple[Any, ...]:
    return commit.sha, code.code_hash, code.recipe_hash, code.facts, code.error


def _change(row: Any) -> CodeChange:
    benchmark, target, toolchain, *codes = row
    before, after = Code(*codes[:5]), Code(*codes[5:])
    return change_of(benchmark=benchmark, target=target, toolchain=toolchain, before=before, after=after)
