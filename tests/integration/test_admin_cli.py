"""What operators type."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from service.cli import main
from service.store.tables import ApiToken, AuditEvent, Channel, GitCommit, Repository
from service.web.auth import hash_token


@pytest.fixture
def kernelwatch(database_url, tmp_path, monkeypatch):
    """Runs a command; returns (exit code, output)."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("KERNELWATCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELWATCH_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, list(arguments))
        return done.exit_code, done.output

    return run


def test_a_repository_is_added_with_its_history_and_its_secret_is_shown_once(kernelwatch, sessions, git_repo):
    shas = [git_repo.kernel("a"), git_repo.kernel("b")]
    code, output = kernelwatch("repo", "add", "ada/k", f"file://{git_repo.path}", "--pool", "cpu", "--pool", "h200")
    assert code == 0, output
    with sessions() as session:
        stored = session.scalars(select(Repository)).one()
        assert session.scalars(select(GitCommit.sha).order_by(GitCommit.position)).all() == shas
    assert stored.webhook_secret in output
    assert stored.pools == ["cpu", "h200"]
    assert stored.webhook_secret not in kernelwatch("repo", "list")[1]
    assert kernelwatch("repo", "add", "ada/k", "file:///x")[0] != 0


def test_a_repository_that_cannot_be_fetched_yet_is_registered_all_the_same(kernelwatch, tmp_path):
    code, output = kernelwatch("repo", "add", "ada/k", f"file://{tmp_path}/missing")
    assert code == 0
    assert "cannot be fetched yet" in output


def test_a_clone_url_that_runs_a_command_is_refused(kernelwatch):
    assert kernelwatch("repo", "add", "ada/k", "ext::sh -c x")[0] != 0


def test_settings_of_a_repository_change_one_by_one(kernelwatch, sessions, git_repo):
    kernelwatch("repo", "add", "ada/k", f"file://{git_repo.path}")
    assert kernelwatch("repo", "set", "ada/k", "--policy", "every", "--nightly", "--watch", "flags")[0] == 0
    assert kernelwatch("repo", "set", "ada/none", "--nightly")[0] != 0
    with sessions() as session:
        stored = session.scalars(select(Repository)).one()
        actions = session.scalars(select(AuditEvent.action).order_by(AuditEvent.id)).all()
    assert (stored.measure_policy, stored.settings, stored.watched_paths) == ("every", {"nightly": True}, ["flags"])
    assert actions == ["add", "set"]


def test_a_token_is_shown_once_stored_as_a_hash_and_revoked_by_name(kernelwatch, sessions):
    code, output = kernelwatch("token", "create", "ci", "--scope", "write", "--days", "3")
    token = output.strip()
    assert code == 0
    with sessions() as session:
        stored = session.scalars(select(ApiToken)).one()
    assert (stored.token_hash, stored.scope) == (hash_token(token), "write")
    assert stored.expires_at is not None
    assert token not in kernelwatch("token", "list")[1]
    assert kernelwatch("token", "revoke", "ci")[0] == 0
    assert kernelwatch("token", "revoke", "ci")[0] != 0


def test_a_channel_needs_what_its_kind_needs(kernelwatch, sessions, git_repo):
    kernelwatch("repo", "add", "ada/k", f"file://{git_repo.path}")
    assert kernelwatch("channel", "add", "ada/k", "team", "email")[0] != 0
    assert kernelwatch("channel", "add", "ada/k", "team", "email", "to=a@x.org, b@x.org", "--improvements")[0] == 0
    with sessions() as session:
        stored = session.scalars(select(Channel)).one()
    assert stored.config == {"to": ["a@x.org", "b@x.org"]}
    assert stored.directions == ["regression", "improvement"]
    assert "team" in kernelwatch("channel", "list")[1]
    code, output = kernelwatch("channel", "test", "ada/k", "team")
    assert code != 0
    assert "KERNELWATCH_SMTP_URL" in output


def test_without_a_database_the_message_says_what_to_do(kernelwatch, monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    code, output = kernelwatch("repo", "list")
    assert code != 0
    assert "kernelwatch up" in output
