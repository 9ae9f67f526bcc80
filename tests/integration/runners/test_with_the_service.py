"""The agent against the real service: a push in, measurements in Postgres out, each exactly once."""

import threading
from dataclasses import asdict

import pytest
from sqlalchemy import select

from runners.agent import Outcome
from service.domain.states import RunState
from service.store.tables import Measurement, Run
from service.store.tables import Repository as RepositoryRow

from .conftest import QUICK
from .hostile import EXIT, GOOD_SUITE, hostile_kernel


@pytest.fixture
def watched(service, repository):
    """The repository as the service knows it."""
    with service.sessions.begin() as session:
        row = RepositoryRow(
            name="acme/kernels",
            clone_url=f"file://{repository.root}",
            suite_path="suite",
            webhook_secret="s3cret-of-the-webhook",
            settings={"protocol": {k: v for k, v in asdict(QUICK).items() if v is not None}},
        )
        session.add(row)
    return row


def runs(service):
    with service.sessions() as session:
        return [(run.id, run.state, run.attempt) for run in session.scalars(select(Run).order_by(Run.id))]


def measured(service):
    with service.sessions() as session:
        found = session.scalars(select(Measurement).order_by(Measurement.id)).all()
        return sorted((row.status, row.value_s is not None) for row in found)


def push(service, watched, repository, sha):
    answer = service.push(watched, repository.git("rev-parse", f"{sha}~1"), sha, guid=sha)
    assert answer.status_code == 202, answer.json


def test_a_push_is_measured_and_its_samples_are_in_the_database(service, watched, repository, agent_of):
    repository.good()
    push(service, watched, repository, repository.commit({"suite/note.txt": "1"}))
    assert agent_of("one").drain() is Outcome.REPORTED
    ((_, state, attempt),) = runs(service)
    assert (state, attempt) == (RunState.REPORTED, 1)
    assert measured(service) == [("ok", True)]


def test_a_hostile_commit_leaves_its_reason_and_the_next_push_is_measured(service, watched, repository, agent_of):
    repository.good()
    agent = agent_of("one")
    push(service, watched, repository, repository.commit(GOOD_SUITE | {"suite/hostile.py": hostile_kernel(EXIT)}))
    assert agent.drain() is Outcome.REPORTED
    assert measured(service) == [("crashed", False), ("ok", True)]
    push(service, watched, repository, repository.commit({"suite/hostile.py": None}))
    assert agent.drain() is Outcome.REPORTED
    assert measured(service) == [("crashed", False), ("ok", True), ("ok", True)]


def test_two_workers_that_hear_the_same_bell_measure_once(service, watched, repository, agent_of):
    repository.good()
    push(service, watched, repository, repository.commit({"suite/note.txt": "2"}))
    ((run_id, _, _),) = runs(service)
    agents = [agent_of("one"), agent_of("two")]
    outcomes = []
    start = threading.Barrier(2)

    def ring(agent):
        start.wait(30)
        outcomes.append(agent.handle(run_id))

    threads = [threading.Thread(target=ring, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [Outcome.NOTHING, Outcome.REPORTED]
    assert runs(service) == [(run_id, RunState.REPORTED, 1)]
    assert measured(service) == [("ok", True)]


def test_a_suite_that_cannot_be_found_fails_the_run_with_a_sentence(service, watched, repository, agent_of):
    repository.good()
    push(service, watched, repository, repository.commit({"suite/broken.py": "def"}))
    assert agent_of("one").drain() is Outcome.REPORTED
    with service.sessions() as session:
        run = session.scalars(select(Run)).one()
    assert run.state == RunState.FAILED
    assert "broken.py" in run.failure_reason
