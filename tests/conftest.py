"""Fixtures that every test may use: a real Postgres, a real broker, a real git repository, settings, a clock.

One server per test session; every test that asks for a database gets its own copy of a migrated template (about
30 ms), so tests commit freely and never meet each other's rows.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

TEMPLATE = "kernelwatch_template"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """URL of a server whose databases we may create and drop: KERNELWATCH_TEST_DATABASE_URL or an embedded one."""
    given = os.environ.get("KERNELWATCH_TEST_DATABASE_URL")
    if given:
        yield given
        return
    from service.local.postgres import temporary_postgres

    with temporary_postgres() as server:
        yield server.url()


@pytest.fixture(scope="session")
def _admin_engine(postgres_server_url):
    from sqlalchemy import NullPool, create_engine

    engine = create_engine(postgres_server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def _template(_admin_engine) -> str:
    """A database at the newest schema, copied for each test."""
    from sqlalchemy import text

    from service.store import schema
    from service.store.engine import make_engine

    with _admin_engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {TEMPLATE} (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {TEMPLATE}"))
    engine = make_engine(_url_of(_admin_engine, TEMPLATE))
    schema.upgrade(engine)
    engine.dispose()
    return TEMPLATE


def _url_of(engine, database: str) -> str:
    return engine.url.set(database=database).render_as_string(hide_password=False)


def _fresh_database(admin_engine, template: str | None) -> Iterator[str]:
    from sqlalchemy import text

    name = f"kernelwatch_{os.getpid()}_{next(_numbers)}"
    copied = f" TEMPLATE {template} STRATEGY file_copy" if template else ""
    with admin_engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}{copied}"))
    yield _url_of(admin_engine, name)
    with admin_engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} (FORCE)"))


@pytest.fixture
def database_url(_admin_engine, _template) -> Iterator[str]:
    """A fresh database at the newest schema, for this test alone."""
    yield from _fresh_database(_admin_engine, _template)


@pytest.fixture
def empty_database_url(_admin_engine) -> Iterator[str]:
    """A fresh database without any table."""
    yield from _fresh_database(_admin_engine, None)


@pytest.fixture
def engine(database_url):
    """An engine on this test's database."""
    from service.store.engine import make_engine

    made = make_engine(database_url, pool_size=10)
    yield made
    made.dispose()


@pytest.fixture
def sessions(engine):
    """A session factory on this test's database."""
    from service.store.engine import make_sessions

    return make_sessions(engine)


@pytest.fixture
def session(sessions):
    """One open session; the test commits what others shall see."""
    with sessions() as opened:
        yield opened


@pytest.fixture(scope="session")
def broker_server_url() -> Iterator[str]:
    """URL of a Redis-compatible broker: KERNELWATCH_TEST_REDIS_URL or an embedded one."""
    given = os.environ.get("KERNELWATCH_TEST_REDIS_URL")
    if given:
        yield given
        return
    from service.local.broker import temporary_broker

    with temporary_broker() as server:
        yield server.url()


@pytest.fixture
def broker_url(broker_server_url) -> Iterator[str]:
    """The broker, emptied before this test."""
    import redis

    client = redis.Redis.from_url(broker_server_url)
    client.flushall()
    yield broker_server_url
    client.close()


@pytest.fixture
def settings(database_url, tmp_path):
    """Settings as `kernelwatch up` makes them, without a broker (nothing listens at that port)."""
    from service.settings import Settings

    return Settings(
        database_url=database_url,
        redis_url="redis://127.0.0.1:1/0",
        data_dir=tmp_path / "data",
        cache_dir=tmp_path / "cache",
        embedded=True,
        admin_token="test-admin-token-4f0c1d7e2a",
        log_level="WARNING",
    )


@dataclass
class FakeClock:
    """A clock that moves only when a test says so."""

    now: datetime = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@dataclass
class RecordingBell:
    """A bell that remembers what it rang."""

    rung: list[tuple[str, int]] = field(default_factory=list)
    tasks: list[tuple[str, dict]] = field(default_factory=list)

    def ring(self, pool: str, run_id: int) -> None:
        self.rung.append((pool, run_id))

    def later(self, task: str, kwargs: dict, *, countdown_s: float = 0.0) -> None:
        self.tasks.append((task, dict(kwargs)))


@pytest.fixture
def bell() -> RecordingBell:
    """A bell that remembers what it rang."""
    return RecordingBell()


@dataclass
class GitRepo:
    """A real git repository built commit by commit; every commit date is the same, so that dates decide nothing."""

    path: Path
    branch: str = "main"
    env: dict[str, str] = field(default_factory=dict)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments], capture_output=True, text=True, check=True, env=self.env
        )
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)

    def commit(self, subject: str, files: dict[str, str] | None = None) -> str:
        """Write `files` and commit everything; returns the sha."""
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.head()

    def kernel(self, text: str, *, subject: str = "Change the kernel") -> str:
        """A commit that changes the suite."""
        return self.commit(subject, {"kernels_under_test/gemm.c": f"/* {text} */\n"})

    def docs(self, text: str) -> str:
        """A commit that does not touch the suite."""
        return self.commit("Documentation", {"README.md": text})

    def merge(self, branch: str, subject: str = "Merge") -> str:
        self.git("merge", "-q", "--no-ff", "-m", subject, branch)
        return self.head()

    def checkout(self, ref: str, *, new: str | None = None) -> None:
        self.git("checkout", "-q", *(["-b", new] if new else []), ref)

    def reset(self, sha: str) -> None:
        self.git("reset", "-q", "--hard", sha)

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def git_repo(tmp_path) -> GitRepo:
    """An empty repository on branch main."""
    path = tmp_path / "upstream"
    path.mkdir()
    moment = "2030-01-01T00:00:00+00:00"
    person = {"NAME": "Ada", "EMAIL": "ada@example.org", "DATE": moment}
    env = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()}
    env |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    built = GitRepo(path, env=env)
    built.git("init", "-q", "-b", "main")
    return built
