"""The mirror on real repositories: what it answers and how it fails."""

from __future__ import annotations

import socket

import pytest

from service.adapters.git import GitMirrors
from service.usecases.ports import MirrorError


@pytest.fixture
def mirror(tmp_path, git_repo):
    return GitMirrors(tmp_path / "mirrors").open(repository_id=1, clone_url=f"file://{git_repo.path}")


def test_suite_trees_are_equal_exactly_when_suite_and_watched_paths_are(mirror, git_repo):
    one = git_repo.kernel("a")
    docs = git_repo.docs("words")
    flags = git_repo.commit("Flags", {"flags": "-O2"})
    two = git_repo.kernel("b")
    mirror.sync()
    suite = mirror.suite_trees([one, docs, flags, two], ["kernels_under_test"])
    assert suite[one] == suite[docs] == suite[flags] != suite[two]
    watched = mirror.suite_trees([one, docs, flags, two], ["kernels_under_test/", "flags"])
    assert watched[one] == watched[docs] != watched[flags]


def test_a_commit_without_the_suite_has_no_tree(mirror, git_repo):
    sha = git_repo.docs("words")
    mirror.sync()
    assert mirror.suite_trees([sha], ["kernels_under_test", "README.md"]) == {sha: None}


def test_commits_come_in_the_order_asked_with_their_facts(mirror, git_repo):
    shas = [git_repo.kernel(str(index), subject=f"S{index}") for index in range(3)]
    mirror.sync()
    facts = mirror.commits(reversed(shas))
    assert [item.sha for item in facts] == shas[::-1]
    assert facts[0].parents == (shas[1],)
    assert (facts[0].subject, facts[0].author, facts[0].author_email) == ("S2", "Ada", "ada@example.org")
    assert facts[-1].parents == ()


def test_a_missing_commit_is_a_mirror_error(mirror, git_repo):
    git_repo.kernel("a")
    mirror.sync()
    with pytest.raises(MirrorError):
        mirror.commits(["a" * 40])


def test_commits_that_a_force_push_took_away_stay_readable(mirror, git_repo):
    base = git_repo.kernel("a")
    fallen = git_repo.kernel("b")
    mirror.sync()
    git_repo.reset(base)
    tip = git_repo.kernel("c")
    mirror.sync()
    assert mirror.branch_tip("main") == tip
    assert mirror.contains(fallen)
    assert mirror.commits([fallen])[0].sha == fallen
    assert mirror.commits_between(fallen, tip) == (tip,)


def test_commits_between_is_the_first_parent_walk_down_to_shared_history(mirror, git_repo):
    base = git_repo.kernel("a")
    git_repo.checkout("main", new="side")
    git_repo.commit("s", {"s": "1"})
    git_repo.checkout("main")
    own = git_repo.kernel("b")
    merge = git_repo.merge("side")
    mirror.sync()
    assert mirror.commits_between(base, merge) == (own, merge)
    assert mirror.commits_between(None, merge) == (base, own, merge)
    assert mirror.commits_between("f" * 40, merge) == (base, own, merge)
    assert mirror.commits_between(merge, base) == ()


def test_a_deleted_branch_is_forgotten(mirror, git_repo):
    git_repo.kernel("a")
    git_repo.git("branch", "old")
    mirror.sync()
    assert mirror.branch_tip("old")
    git_repo.git("branch", "-D", "old")
    mirror.sync()
    assert mirror.branch_tip("old") is None


@pytest.mark.parametrize("text", ["", "HEAD", "main", "--all", "a" * 40, "-x" * 20])
def test_nothing_but_a_fetched_commit_id_is_contained(mirror, git_repo, text):
    git_repo.kernel("a")
    mirror.sync()
    assert not mirror.contains(text)


def test_differences_and_files_are_read(mirror, git_repo):
    one = git_repo.kernel("a")
    two = git_repo.commit("Two", {"kernels_under_test/gemm.c": "int x;\n", "näme\n.txt": "y", "blob": "\x00"})
    mirror.sync()
    assert set(mirror.diff_names(one, two)) == {"kernels_under_test/gemm.c", "näme\n.txt", "blob"}
    assert "+int x;" in mirror.diff_text(one, two, paths=["kernels_under_test"])
    assert len(mirror.diff_text(one, two, limit_bytes=10)) <= 10
    assert mirror.read_file(two, "kernels_under_test/gemm.c") == "int x;\n"
    assert mirror.read_file(two, "missing") is None
    assert mirror.read_file(two, "blob") is None
    assert mirror.read_file(two, "kernels_under_test/gemm.c", limit_bytes=3) is None
    assert mirror.is_ancestor(one, two)
    assert not mirror.is_ancestor(two, one)


@pytest.mark.parametrize("url", ["--upload-pack=touch x", "ext::sh -c touch% x", "a b", "file:///x\ny"])
def test_an_address_that_git_could_take_for_a_command_is_refused(tmp_path, url):
    with pytest.raises(MirrorError):
        GitMirrors(tmp_path).open(repository_id=1, clone_url=url)


def test_a_remote_that_never_answers_is_given_up_after_the_time_limit(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mirror = GitMirrors(tmp_path).open(repository_id=1, clone_url=f"git://127.0.0.1:{port}/x")
        with pytest.raises(MirrorError, match="took longer"):
            mirror.sync(timeout_s=0.5)


def test_a_missing_remote_is_a_mirror_error_and_a_later_sync_works(tmp_path, git_repo):
    sha = git_repo.kernel("a")
    away = git_repo.path.rename(tmp_path / "away")
    mirror = GitMirrors(tmp_path / "mirrors").open(repository_id=1, clone_url=f"file://{git_repo.path}")
    with pytest.raises(MirrorError):
        mirror.sync()
    away.rename(git_repo.path)
    mirror.sync()
    assert mirror.contains(sha)
