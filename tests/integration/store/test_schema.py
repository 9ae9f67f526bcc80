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
