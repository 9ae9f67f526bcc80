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


@dataclass
class Service:
    """The whole service on this test's database, with a bell that only remembers and a clock that stands still."""

    settings: object
    sessions: object
    bell: RecordingBell
    clock: FakeClock
    parts: object
    app: object
    http: object

    def post(self, path: str, body: object, *, token: str | None = None, **headers: str):
        import json

        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self.http.post(path, data=sent, content_type="application/json", headers=headers)

    def push(self, repository, before: str, after: str, *, guid: str, branch: str = "main", **changes):
        """A signed push as GitHub sends it."""
        import json

        from service.adapters import github

        payload = {"ref": f"refs/heads/{branch}", "before": before, "after": after, "forced": False}
        body = json.dumps({**payload, "repository": {"full_name": repository.name}, **changes}).encode()
        signature = github.sign(repository.webhook_secret, body)
        headers = {"X-GitHub-Event": "push", "X-GitHub-Delivery": guid, "X-Hub-Signature-256": signature}
        return self.post("/webhooks/github", body, **headers)

    def runner(self, name: str = "runner-1", pool: str = "cpu") -> str:
        """Register a runner with a one-time token; returns its own token."""
        from service.store.tables import ApiToken
        from service.web.auth import hash_token, new_token

        once = new_token("register")
        with self.sessions.begin() as session:
            session.add(ApiToken(name=name, token_hash=hash_token(once), scope="register"))
        body = {"name": name, "pool": pool, "device": "cpu:test", "comparable_key": "cpu:test", "facts": {}}
        answer = self.post("/api/v1/runners/register", body, token=once)
        assert answer.status_code == 201, answer.json
        return answer.json["token"]

    def claim(self, token: str, run_id: int | None = None):
        """Claim a run; returns the order as a dict, or None."""
        answer = self.post("/api/v1/runners/claim", {"run_id": run_id}, token=token)
        assert answer.status_code in (200, 204), answer.json
        return answer.json if answer.status_code == 200 else None

    def report(self, token: str, report: dict):
        return self.post(f"/api/v1/runs/{report['run_id']}/report", report, token=token)


@pytest.fixture
def service(settings, engine, sessions, bell, clock) -> Service:
    """The service: web side, store, mirrors; see `Service`."""
    from service.adapters.git import GitMirrors
    from service.web.app import create_app
    from service.wiring import Services

    parts = Services(
        settings=settings,
        engine=engine,
        sessions=sessions,
        bell=bell,
        mirrors=GitMirrors(settings.cache_dir / "mirrors"),
        clock=clock,
    )
    app = create_app(settings, parts)
    return Service(settings, sessions, bell, clock, parts, app, app.test_client())


@pytest.fixture
def repository(sessions, git_repo):
    """The repository of `git_repo`, registered as ada/kernels with the policy `tip` on the pool cpu."""
    from service.store.tables import Repository

    with sessions.begin() as session:
        made = Repository(
            name="ada/kernels", clone_url=f"file://{git_repo.path}", webhook_secret="s3cret-of-the-webhook"
        )
        session.add(made)
    return made


def build_measurement(sha: str, /, **changes) -> dict:
    """One good measurement as JSON; `changes` replace fields."""
    block = {"process": 0, "order": 0, "wall_s": [0.011, 0.010, 0.012], "cpu_s": [0.010, 0.010, 0.011]}
    block |= {"canary_wall_s": 0.002, "canary_cpu_s": 0.002, "flags": []}
    return {
        "sha": sha,
        "benchmark": "gemm_f32",
        "family": "gemm",
        "version": 1,
        "problem": "gemm",
        "device": "cpu",
        "workload": "gemm_f32[k=64,m=64,n=64]",
        "axes": {"k": 64, "m": 64, "n": 64},
        "control": False,
        "flops": 524288.0,
        "bytes": 49152.0,
        "status": "ok",
        "value_s": 0.0107,
        "half_width_s": 0.0002,
        "clock": "wall",
        "blocks": [block, block | {"process": 1}],
        "code_hash": "c0de",
    } | changes


@pytest.fixture
def make_measurement():
    """Builds one good measurement; keyword arguments replace fields."""
    return build_measurement


@pytest.fixture
def make_report():
    """Builds the report of a good run from its order; keyword arguments replace fields."""

    def build(order: dict, **changes) -> dict:
        environment = {"device": "cpu:test", "comparable_key": "cpu:test", "fingerprint": "f1", "facts": {"os": "x"}}
        return {
            "contract_version": 1,
            "run_id": order["run_id"],
            "attempt": order["attempt"],
            "lease_token": order["lease_token"],
            "started_at": 1893553445.0,
            "finished_at": 1893553455.5,
            "device_s": 10.5,
            "harness_epoch": 1,
            "environment": environment,
            "measurements": [build_measurement(order["sha"])],
            "canary_wall_s": 0.002,
            "canary_cpu_s": 0.002,
        } | changes

    return build
