"""The schema: one head, up and down, model = schema, prose = schema, and two migrations at once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from service.store import schema
from service.store.engine import StoreError, make_engine, normalise_url
from service.store.tables import Base


@pytest.fixture
def empty_engine(empty_database_url):
    made = make_engine(empty_database_url)
    yield made
    made.dispose()


def test_the_history_has_one_head():
    assert len(ScriptDirectory.from_config(schema.alembic_config()).get_heads()) == 1


def test_the_models_are_the_migrated_schema(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_constraints_and_indexes_are_word_for_word_those_of_the_models(engine, empty_engine):
    Base.metadata.create_all(empty_engine)
    migrated, declared = _definitions(engine), _definitions(empty_engine)
    assert migrated == declared
    assert len(declared) > 60


def _definitions(engine) -> set[str]:
    constraints = "SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint"
    with engine.connect() as connection:
        found = set(connection.scalars(text(f"{constraints} WHERE connamespace = 'public'::regnamespace")))
        found |= set(connection.scalars(text("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'")))
    return {line for line in found if "alembic_version" not in line}


def test_every_migration_goes_up_down_and_up_again(empty_engine):
    revisions = [script.revision for script in ScriptDirectory.from_config(schema.alembic_config()).walk_revisions()]
    for revision in reversed(revisions):
        schema.upgrade(empty_engine, revision)
        schema.downgrade(empty_engine, "-1")
        schema.upgrade(empty_engine, revision)
    assert schema.database_revision(empty_engine) == schema.head_revision()
    schema.downgrade(empty_engine, "base")
    assert inspect(empty_engine).get_table_names() in ([], ["alembic_version"])


HISTORY_BEFORE_BRIDGES = """
INSERT INTO repository (name, clone_url, webhook_secret) VALUES ('acme/kernels', '', '');
INSERT INTO git_commit (repository_id, sha, parents, author, author_email, subject, committed_at)
    SELECT 1, name, '{}', '', '', '', now() FROM unnest(ARRAY['a', 'b']) AS name;
INSERT INTO benchmark (repository_id, name, version, family, problem, device, control)
    VALUES (1, 'k', 1, 'f', 'p', 'cpu', false);
INSERT INTO workload (benchmark_id, key, axes, flops, bytes) VALUES (1, 'k', '{}', 1, 1);
INSERT INTO series (repository_id, workload_id, metric, direction, pool, comparable_key, harness_epoch)
    SELECT 1, 1, 'time', 'lower', 'cpu', name, 1 FROM unnest(ARRAY['old', 'new', 'only confirmed']) AS name;
INSERT INTO run (repository_id, commit_id, pool, reason, dedupe_key)
    SELECT 1, 1, 'cpu', reason, at FROM unnest(ARRAY['push', 'nightly', 'confirm'], ARRAY['1', '2', '3']) AS r(reason, at);
INSERT INTO measurement (run_id, series_id, commit_id, status, n, clock, measured_at, wall_s, cpu_s, block_size,
                         block_process, block_order, block_canary_wall_s, block_canary_cpu_s)
    SELECT run_id, series_id, commit_id, 'ok', 1, 'wall', at::timestamptz, '{}', '{}', '{}', '{}', '{}', '{}', '{}'
    FROM (VALUES (1, 1, 1, '2030-01-01Z'), (2, 1, 1, '2030-01-02Z'), (2, 2, 1, '2030-01-03Z'), (3, 2, 1, '2030-01-09Z'),
                 (1, 2, 2, '2030-01-08Z'), (3, 3, 1, '2030-01-09Z')) AS m(run_id, series_id, commit_id, at);
"""


def test_which_series_lives_is_read_from_the_pushes_and_nightly_runs_that_are_there(empty_engine):
    schema.upgrade(empty_engine, "0009")
    with empty_engine.begin() as connection:
        connection.execute(text(HISTORY_BEFORE_BRIDGES))
    schema.upgrade(empty_engine)
    with empty_engine.connect() as connection:
        found = connection.execute(text("SELECT comparable_key, extract(day FROM history_at) FROM series ORDER BY id"))
        assert [tuple(row) for row in found] == [("old", 2), ("new", 3), ("only confirmed", None)]


def test_migrations_that_start_together_run_one_after_the_other(empty_database_url):
    with ThreadPoolExecutor(4) as pool:
        revisions = list(pool.map(_upgrade_in_process, [empty_database_url] * 4))
    assert revisions == [schema.head_revision()] * 4


def _upgrade_in_process(url: str) -> str:
    import subprocess
    import sys

    code = (
        "import sys; from service.store import schema; from service.store.engine import make_engine\n"
        "engine = make_engine(sys.argv[1]); schema.upgrade(engine); print(schema.database_revision(engine))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(schema.__file__).parents[2],
    )
    return done.stdout.strip()


def test_the_prose_describes_every_table_and_column_and_no_other():
    prose = (Path(schema.__file__).parents[2] / "migrations" / "README.md").read_text()
    sections = re.split(r"^### `(\w+)`", prose, flags=re.MULTILINE)[1:]
    described = {
        name: set(re.findall(r"^\| `(\w+)` \|", body, flags=re.MULTILINE))
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }
    actual = {table.name: {column.name for column in table.columns} for table in Base.metadata.sorted_tables}
    assert described == actual


@pytest.mark.parametrize("url", ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+psycopg2://u@h/d"])
def test_every_spelling_of_a_postgres_url_means_our_driver(url):
    assert normalise_url(url).drivername == "postgresql+psycopg2"


def test_another_database_is_refused_with_a_sentence():
    with pytest.raises(StoreError, match="PostgreSQL"):
        normalise_url("sqlite:///x.db")
