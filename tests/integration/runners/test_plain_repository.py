"""A repository that is not ours, from push to figures: its Makefile builds inside the sandbox, its suite is measured."""

from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import select

from runners.agent import Outcome
from service.contract import FailureStage
from service.domain.states import RunState
from service.store.tables import Benchmark, Measurement, Run, Series, Workload
from service.store.tables import Repository as RepositoryRow

from .conftest import QUICK

PLAIN = Path(__file__).parents[2] / "fixtures" / "plain_repository"


@pytest.fixture
def dots(service, repository):
    """The repository as `kernelwatch repo add` registers it, and its first commit."""
    files = {
        str(path.relative_to(PLAIN)): path.read_text()
        for path in PLAIN.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    repository.commit(files, "A library of dot products")
    with service.sessions.begin() as session:
        row = RepositoryRow(
            name="ada/dots",
            clone_url=f"file://{repository.root}",
            suite_path="benchmarks",
            build_command="make -s lib",
            watched_paths=["src", "Makefile"],
            webhook_secret="s3cret-of-the-webhook",
            settings={"protocol": {k: v for k, v in asdict(QUICK).items() if v is not None}},
        )
        session.add(row)
    return row


@pytest.fixture
def push(service, dots, repository, agent_of):
    """Commit files, announce them, let the agent work, and return the run."""
    agent = agent_of("one")

    def announce(files):
        before = repository.git("rev-parse", "HEAD")
        sha = repository.commit(files)
        assert service.push(dots, before, sha, guid=sha).status_code == 202
        assert agent.drain() is Outcome.REPORTED
        with service.sessions() as session:
            return session.scalars(select(Run).order_by(Run.id.desc()).limit(1)).one()

    return announce


def rows_of(service, run):
    statement = (
        select(Workload.key, Measurement, Benchmark.control)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Measurement.run_id == run.id)
    )
    with service.sessions() as session:
        return {key: (row.status, row.n, control) for key, row, control in session.execute(statement)}


def test_what_a_makefile_builds_is_measured_beside_its_control(service, push):
    source = (PLAIN / "src" / "dots.c").read_text()
    run = push({"src/dots.c": "/* The same, said twice. */\n" + source})
    assert run.state == RunState.REPORTED
    found = rows_of(service, run)
    assert set(found) == {
        "dots_library[cols=2048,rows=1024]",
        "dots_library[cols=1001,rows=100]",
        "dots_numpy[cols=2048,rows=1024]",
        "dots_numpy[cols=1001,rows=100]",
    }
    assert {status for status, _, _ in found.values()} == {"ok"}
    assert all(samples > 0 for _, samples, _ in found.values())
    assert {key for key, (_, _, control) in found.items() if control} == {key for key in found if "numpy" in key}


def test_an_error_in_the_library_is_told_apart_from_a_slow_library(service, push):
    source = (PLAIN / "src" / "dots.c").read_text()
    wrong = push({"src/dots.c": source.replace("+= sums[i]", "-= sums[i]")})
    assert source.count("+= sums[i]") == 1
    statuses = {key: status for key, (status, _, _) in rows_of(service, wrong).items()}
    assert statuses["dots_library[cols=2048,rows=1024]"] == "wrong_result"
    assert statuses["dots_numpy[cols=2048,rows=1024]"] == "ok"


def test_a_library_that_does_not_build_fails_the_run_in_the_build(service, push):
    run = push({"src/dots.c": "int dots( {\n"})
    assert run.state == RunState.FAILED
    assert run.failure_stage == FailureStage.BUILD
    assert "build command" in run.failure_reason
