"""What git says of a named commit: owners, side commits, and the inner range of a bump."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from service.adapters.git import GitMirrors
from service.store.tables import GitCommit, Regression, Repository
from service.usecases.trace import trace_culprits

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIBRARY = "https://git.example.org/acme/library.git"


@pytest.fixture
def mirrors(tmp_path):
    return GitMirrors(tmp_path / "mirrors")


def blame(sessions, mirrors, git_repo, culprit: str) -> dict:
    """Name `culprit` in a regression of the repository, trace it, and return what was stored."""
    with sessions.begin() as session:
        repository = Repository(name="acme/app", clone_url=f"file://{git_repo.path}", webhook_secret="s" * 32)
        session.add_all([repository, Repository(name="acme/library", clone_url=LIBRARY, webhook_secret="s" * 32)])
        session.flush()
        mirror = mirrors.open(repository_id=repository.id, clone_url=repository.clone_url)
        mirror.sync()
        (fact,) = mirror.commits([culprit])
        rows = []
        for position, (sha, parents) in enumerate(((fact.parents[0], []), (culprit, list(fact.parents)))):
            row = GitCommit(repository_id=repository.id, sha=sha, parents=parents, position=position, author="Ada",
                            author_email="ada@example.org", subject="s", committed_at=NOW)  # fmt: skip
            session.add(row)
            rows.append(row)
        session.flush()
        session.add(
            Regression(repository_id=repository.id, direction="regression", state="attributed", effect=0.1,
                       effect_low=0.09, effect_high=0.11, good_commit_id=rows[0].id, bad_commit_id=rows[1].id,
                       culprit_commit_id=rows[1].id)
        )  # fmt: skip
    assert trace_culprits(sessions, mirrors=mirrors) == 1
    assert trace_culprits(sessions, mirrors=mirrors) == 0  # once is enough
    with sessions() as session:
        return session.scalars(select(Regression.origin)).one()


def test_owners_come_from_the_codeowners_file_of_that_commit(sessions, mirrors, git_repo):
    git_repo.commit("Owners", {".github/CODEOWNERS": "* @all\n/kernels_under_test/ @kernels\n"})
    culprit = git_repo.kernel("slow")
    git_repo.commit("Owners change later", {".github/CODEOWNERS": "* @others\n"})
    assert blame(sessions, mirrors, git_repo, culprit)["owners"] == ["@kernels"]


def test_a_merge_offers_the_commits_of_its_side(sessions, mirrors, git_repo):
    fork = git_repo.kernel("start")
    git_repo.git("checkout", "-q", "-b", "side")
    inner = [git_repo.kernel("one", subject="Inner one"), git_repo.kernel("two", subject="Inner two")]
    git_repo.checkout("main")
    git_repo.docs("words")
    origin = blame(sessions, mirrors, git_repo, git_repo.merge("side"))
    assert [one["sha"] for one in origin["inner"]] == inner
    assert [one["subject"] for one in origin["inner"]] == ["Inner one", "Inner two"]
    assert origin["fork"] == fork


def test_a_bump_of_a_registered_repository_names_its_inner_range(sessions, mirrors, git_repo):
    def pins(library, foreign):
        return {
            "requirements.txt": f"library @ git+{LIBRARY}@{library}\n"
            f"foreign @ git+https://git.example.org/else/where@{foreign}\n"
        }

    git_repo.commit("Pin", pins("1" * 40, "3" * 40))
    origin = blame(sessions, mirrors, git_repo, git_repo.commit("Bump", pins("2" * 40, "4" * 40)))
    assert origin["bumps"] == [{"place": LIBRARY, "before": "1" * 40, "after": "2" * 40, "repository": "acme/library"}]


def test_an_ordinary_commit_has_nothing_to_offer(sessions, mirrors, git_repo):
    git_repo.kernel("start")
    origin = blame(sessions, mirrors, git_repo, git_repo.kernel("slow"))
    assert (origin["owners"], origin["inner"], origin["fork"], origin["bumps"]) == ([], [], None, [])
