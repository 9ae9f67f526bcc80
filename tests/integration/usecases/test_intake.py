"""From pushes to the first-parent line and to runs, on real git repositories."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.store.tables import GitCommit, Repository, Run, WebhookDelivery

ZERO = "0" * 40


@pytest.fixture
def line(service):
    """Shas on the line, in order of position."""

    def read() -> list[str]:
        with service.sessions() as session:
            rows = session.execute(
                select(GitCommit.position, GitCommit.sha)
                .where(GitCommit.position.is_not(None))
                .order_by(GitCommit.position)
            ).all()
        assert [position for position, _ in rows] == list(range(len(rows)))
        return [sha for _, sha in rows]

    return read


@pytest.fixture
def runs(service):
    """(sha, state) of every run, in order of creation."""

    def read() -> list[tuple[str, str]]:
        with service.sessions() as session:
            rows = session.execute(
                select(GitCommit.sha, Run.state).join(Run, Run.commit_id == GitCommit.id).order_by(Run.id)
            ).all()
        return [tuple(row) for row in rows]

    return read


@pytest.fixture
def change(service, repository):
    """Changes columns of the repository."""

    def apply(**columns) -> None:
        with service.sessions.begin() as session:
            for name, value in columns.items():
                setattr(session.get_one(Repository, repository.id), name, value)

    return apply


def note_of(service, guid: str) -> str | None:
    with service.sessions() as session:
        return session.scalars(select(WebhookDelivery).where(WebhookDelivery.guid == guid)).one().note


def test_the_policy_tip_measures_the_last_commit_of_each_push(service, repository, git_repo, line, runs):
    first = [git_repo.kernel(f"a{index}") for index in range(3)]
    service.push(repository, ZERO, first[-1], guid="1")
    second = [git_repo.kernel(f"b{index}") for index in range(4)]
    service.push(repository, first[-1], second[-1], guid="2")
    assert line() == first + second
    assert runs() == [(first[-1], "queued"), (second[-1], "queued")]


def test_the_policy_every_measures_each_first_parent_commit(service, repository, git_repo, runs, change):
    change(measure_policy="every")
    first = git_repo.kernel("a")
    service.push(repository, ZERO, first, guid="1")
    two, docs, three = git_repo.kernel("b"), git_repo.docs("words"), git_repo.kernel("c")
    service.push(repository, first, three, guid="2")
    assert runs() == [(first, "queued"), (two, "queued"), (docs, "skipped"), (three, "queued")]


def test_a_first_push_of_a_long_history_orders_a_bounded_number_of_runs(
    service, repository, git_repo, line, runs, change
):
    change(measure_policy="every")
    shas = [git_repo.kernel(str(index)) for index in range(60)]
    service.push(repository, ZERO, shas[-1], guid="1")
    assert line() == shas
    assert [sha for sha, _ in runs()] == shas[-50:]


def test_each_pool_gets_its_own_run(service, repository, git_repo, change):
    change(pools=["cpu", "h200"])
    service.push(repository, ZERO, git_repo.kernel("a"), guid="1")
    assert [pool for pool, _ in service.bell.rung] == ["cpu", "h200"]


def test_a_tip_whose_suite_equals_the_last_measured_one_is_skipped_with_the_reason(service, repository, git_repo, runs):
    measured = git_repo.kernel("a")
    service.push(repository, ZERO, measured, guid="1")
    words = git_repo.docs("words")
    service.push(repository, measured, words, guid="2")
    more = git_repo.docs("more words")
    service.push(repository, words, more, guid="3")
    assert runs() == [(measured, "queued"), (words, "skipped"), (more, "skipped")]
    with service.sessions() as session:
        reasons = session.scalars(select(Run.failure_reason).where(Run.state == "skipped")).all()
    assert all(measured[:12] in reason for reason in reasons)
    assert len(service.bell.rung) == 1


def test_a_change_that_was_taken_back_within_a_push_is_skipped(service, repository, git_repo, runs):
    measured = git_repo.kernel("a")
    service.push(repository, ZERO, measured, guid="1")
    git_repo.kernel("b")
    back = git_repo.kernel("a")
    service.push(repository, measured, back, guid="2")
    assert runs()[-1] == (back, "skipped")


def test_a_watched_path_counts_like_the_suite(service, repository, git_repo, runs, change):
    change(watched_paths=["build", "flags.txt"])
    measured = git_repo.kernel("a")
    service.push(repository, ZERO, measured, guid="1")
    flags = git_repo.commit("Flags", {"flags.txt": "-O3"})
    service.push(repository, measured, flags, guid="2")
    nested = git_repo.commit("Build", {"build/deep/x.mk": "1"})
    service.push(repository, flags, nested, guid="3")
    assert [state for _, state in runs()] == ["queued"] * 3


def test_a_commit_without_the_suite_is_skipped(service, repository, git_repo, runs):
    service.push(repository, ZERO, git_repo.docs("words"), guid="1")
    assert [state for _, state in runs()] == ["skipped"]


def test_a_failed_run_does_not_excuse_the_next_commit(service, repository, git_repo, runs):
    measured = git_repo.kernel("a")
    service.push(repository, ZERO, measured, guid="1")
    with service.sessions.begin() as session:
        session.scalars(select(Run)).one().state = "failed"
    words = git_repo.docs("words")
    service.push(repository, measured, words, guid="2")
    assert runs()[-1] == (words, "queued")


def test_only_the_merge_of_a_branch_is_on_the_line(service, repository, git_repo, line, runs):
    base = git_repo.kernel("a")
    git_repo.checkout("main", new="side")
    inner = [git_repo.commit(f"s{index}", {f"kernels_under_test/s{index}.c": "x"}) for index in range(3)]
    git_repo.checkout("side", new="deeper")
    git_repo.commit("d", {"kernels_under_test/d.c": "x"})
    git_repo.checkout("side")
    git_repo.commit("e", {"kernels_under_test/e.c": "x"})
    git_repo.merge("deeper")
    git_repo.checkout("main")
    own = git_repo.commit("own", {"kernels_under_test/own.c": "x"})
    merge = git_repo.merge("side")
    service.push(repository, ZERO, merge, guid="1")
    assert line() == [base, own, merge]
    assert runs() == [(merge, "queued")]
    with service.sessions() as session:
        stored = session.scalars(select(GitCommit).where(GitCommit.sha == merge)).one()
        assert stored.parents[0] == own
        assert not session.scalars(select(GitCommit).where(GitCommit.sha.in_(inner))).all()


def test_a_fast_forward_to_a_merge_made_elsewhere_follows_its_first_parent(service, repository, git_repo, line):
    base = git_repo.kernel("a")
    git_repo.checkout("main", new="side")
    side = git_repo.kernel("b")
    git_repo.checkout("main")
    main = git_repo.commit("m", {"kernels_under_test/m.c": "x"})
    service.push(repository, ZERO, main, guid="1")
    git_repo.checkout("side")
    foxtrot = git_repo.merge("main")  # first parent: side
    git_repo.checkout("main")
    git_repo.git("merge", "-q", "--ff-only", "side")
    service.push(repository, main, foxtrot, guid="2")
    assert line() == [base, side, foxtrot]


def test_dates_decide_nothing(service, repository, git_repo, line):
    shas = []
    for year in ("2030", "2011", "2040", "1999"):
        git_repo.env |= {"GIT_AUTHOR_DATE": f"{year}-01-01T00:00:00Z", "GIT_COMMITTER_DATE": f"{year}-01-01T00:00:00Z"}
        shas.append(git_repo.kernel(year))
    service.push(repository, ZERO, shas[-1], guid="1")
    assert line() == shas


def test_a_force_push_takes_fallen_commits_off_the_line_and_keeps_them(service, repository, git_repo, line, runs):
    kept = git_repo.kernel("a")
    fallen = [git_repo.kernel("b"), git_repo.kernel("c")]
    service.push(repository, ZERO, fallen[-1], guid="1")
    git_repo.reset(kept)
    new = [git_repo.kernel("d"), git_repo.kernel("e"), git_repo.kernel("f")]
    service.push(repository, fallen[-1], new[-1], guid="2", forced=True)
    assert line() == [kept, *new]
    assert runs() == [(fallen[-1], "queued"), (new[-1], "queued")]
    with service.sessions() as session:
        positions = session.scalars(select(GitCommit.position).where(GitCommit.sha.in_(fallen))).all()
    assert positions == [None, None]

    git_repo.reset(fallen[-1])
    service.push(repository, new[-1], fallen[-1], guid="3", forced=True)
    assert line() == [kept, *fallen]


@pytest.mark.parametrize("kept", [0, 1, 2, 5, 8, 9])
def test_a_force_push_finds_the_fork_wherever_it_is(service, repository, git_repo, line, kept):
    old = [git_repo.kernel(f"o{index}") for index in range(9)]
    service.push(repository, ZERO, old[-1], guid="1")
    if kept:
        git_repo.reset(old[kept - 1])
    else:
        git_repo.git("checkout", "-q", "--orphan", "fresh")
        git_repo.kernel("root")
        git_repo.git("branch", "-M", "main")
    new = [git_repo.head()] * (kept == 0) + [git_repo.kernel(f"n{index}") for index in range(4)]
    service.push(repository, old[-1], new[-1], guid="2", forced=True)
    assert line() == old[:kept] + new


def test_a_shortened_branch_is_followed(service, repository, git_repo, line, runs):
    old = [git_repo.kernel(f"o{index}") for index in range(4)]
    service.push(repository, ZERO, old[-1], guid="1")
    git_repo.reset(old[1])
    service.push(repository, old[-1], old[1], guid="2", forced=True)
    assert line() == old[:2]
    assert runs()[-1] == (old[1], "queued")


def test_pushes_that_arrive_in_the_wrong_order_are_each_measured_in_place(service, repository, git_repo, line, runs):
    one = git_repo.kernel("a")
    two = git_repo.kernel("b")
    three = git_repo.kernel("c")
    service.push(repository, two, three, guid="late")
    service.push(repository, one, two, guid="early")
    assert line() == [one, two, three]
    assert runs() == [(three, "queued"), (two, "queued")]


def test_a_push_that_a_force_push_has_overtaken_measures_the_new_tip(service, repository, git_repo, runs):
    base = git_repo.kernel("a")
    service.push(repository, ZERO, base, guid="1")
    gone = git_repo.kernel("b")
    git_repo.reset(base)
    tip = git_repo.kernel("c")
    service.push(repository, base, gone, guid="2")
    assert runs()[-1] == (tip, "queued")
    assert gone[:12] in note_of(service, "2")


def test_a_missing_branch_is_noted(service, repository, git_repo, change):
    change(default_branch="trunk")
    git_repo.kernel("a")
    service.push(repository, ZERO, git_repo.head(), guid="1", branch="trunk")
    assert note_of(service, "1") == "the mirror has no branch trunk"


def test_strange_names_and_subjects_are_stored_as_they_are(service, repository, git_repo):
    git_repo.env |= {"GIT_AUTHOR_NAME": "Ünïc\x1fode 名前", "GIT_AUTHOR_EMAIL": "a b@c"}
    tip = git_repo.kernel("a", subject="Fix \x1f 'quotes' \\ and\ttabs\n\nbody")
    service.push(repository, ZERO, tip, guid="1")
    with service.sessions() as session:
        commit = session.scalars(select(GitCommit)).one()
    assert commit.subject == "Fix \x1f 'quotes' \\ and\ttabs"
    assert commit.author == "Ünïc\x1fode 名前"
