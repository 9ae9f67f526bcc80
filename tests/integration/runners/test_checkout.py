"""Mirrors and worktrees of real repositories: merges, renames, force pushes, crashes."""

import subprocess

import pytest

from runners.checkout import CheckoutError, Mirror
from runners.scratch import remove_stale
from service.contract import FailureKind

from .hostile import GOOD_SUITE


@pytest.fixture
def mirror(repository, tmp_path):
    return Mirror(tmp_path / "cache", name="acme/kernels", clone_url=str(repository.root))


def test_a_commit_is_checked_out_and_removed_again(repository, mirror):
    sha = repository.good()
    with mirror.worktree(sha, "suite") as worktree:
        assert (worktree.suite_dir / "good.py").read_text() == GOOD_SUITE["suite/good.py"]
        assert worktree.suite_tree == repository.git("rev-parse", f"{sha}:suite")
        kept = worktree.root
    assert not kept.exists()
    assert list(kept.parent.iterdir()) == []


def test_new_commits_merges_and_renames_are_fetched_as_they_come(repository, mirror):
    first = repository.good()
    with mirror.worktree(first, "suite"):
        pass
    repository.git("checkout", "-q", "-b", "side")
    renamed = repository.commit({"suite/good.py": None, "suite/better.py": GOOD_SUITE["suite/good.py"]})
    repository.git("checkout", "-q", "main")
    repository.commit({"README.md": "hello"})
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    merge = repository.git("rev-parse", "HEAD")
    for sha, name in ((renamed, "better.py"), (merge, "better.py"), (first, "good.py")):
        with mirror.worktree(sha, "suite") as worktree:
            assert (worktree.suite_dir / name).exists()


def test_two_commits_can_be_out_at_once(repository, mirror):
    one = repository.good()
    two = repository.commit({"suite/two.txt": "2"})
    with mirror.worktree(one, "suite") as a, mirror.worktree(two, "suite") as b, mirror.worktree(one, "suite") as c:
        assert len({a.root, b.root, c.root}) == 3
        assert not (a.suite_dir / "two.txt").exists()
        assert (b.suite_dir / "two.txt").exists()


def test_a_commit_that_was_force_pushed_away_stays_measurable(repository, mirror):
    base = repository.good()
    gone = repository.commit({"suite/gone.txt": "x"})
    with mirror.worktree(gone, "suite"):
        pass
    repository.git("reset", "-q", "--hard", base)
    new = repository.commit({"suite/new.txt": "x"})
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    with mirror.worktree(new, "suite"), mirror.worktree(gone, "suite") as worktree:
        assert (worktree.suite_dir / "gone.txt").exists()


def test_a_commit_on_no_branch_is_fetched_by_its_id(repository, mirror):
    base = repository.good()
    loose = repository.commit({"suite/loose.txt": "x"})
    repository.git("reset", "-q", "--hard", base)
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    with mirror.worktree(loose, "suite") as worktree:
        assert (worktree.suite_dir / "loose.txt").exists()


def test_the_source_is_never_written_to(repository, mirror):
    sha = repository.good()
    before = repository.git("for-each-ref"), repository.git("status", "--porcelain"), repository.git("worktree", "list")
    with mirror.worktree(sha, "suite"):
        pass
    assert before == (
        repository.git("for-each-ref"),
        repository.git("status", "--porcelain"),
        repository.git("worktree", "list"),
    )


@pytest.mark.parametrize(
    ("sha", "suite", "sentence", "kind"),
    [
        ("f" * 40, "suite", "has no commit", FailureKind.PERMANENT),
        ("main", "suite", "not a full commit id", FailureKind.PERMANENT),
        ("--upload-pack=x", "suite", "not a full commit id", FailureKind.PERMANENT),
        (None, "nowhere", "has no folder nowhere", FailureKind.PERMANENT),
        (None, "suite/good.py", "has no folder", FailureKind.PERMANENT),
        (None, "../other", "leads out of the repository", FailureKind.PERMANENT),
        (None, "/etc", "leads out of the repository", FailureKind.PERMANENT),
    ],
)
def test_what_cannot_be_had_is_said_in_a_sentence(repository, mirror, sha, suite, sentence, kind):
    good = repository.good()
    with pytest.raises(CheckoutError, match=sentence) as caught, mirror.worktree(sha or good, suite):
        pass
    assert caught.value.kind is kind


def test_a_repository_that_cannot_be_reached_is_tried_again(tmp_path):
    mirror = Mirror(tmp_path / "cache", name="gone", clone_url=str(tmp_path / "nothing"))
    with pytest.raises(CheckoutError, match="cannot be fetched") as caught, mirror.worktree("a" * 40, "suite"):
        pass
    assert caught.value.kind is FailureKind.TRANSIENT


def test_a_link_in_the_repository_is_read_as_a_link(repository, mirror, tmp_path):
    secret = tmp_path / "secret.toml"
    secret.write_text("[tool.kernelwatch]\n")
    (repository.root / "pyproject.toml").symlink_to(secret)
    sha = repository.commit(GOOD_SUITE)
    with mirror.worktree(sha, "suite"):
        assert mirror.read_file(sha, "pyproject.toml") == str(secret)
    assert mirror.read_file(sha, "nothing.toml") is None


def test_worktrees_of_a_killed_runner_are_removed_and_held_ones_are_not(repository, mirror, tmp_path):
    sha = repository.good()
    with mirror.worktree(sha, "suite") as held:
        stale = held.root.with_name(f"{sha[:12]}-crashed")
        subprocess.run(
            [
                "git",
                f"--git-dir={next((tmp_path / 'cache' / 'mirrors').glob('*.git'))}",
                "worktree",
                "add",
                "-q",
                "--detach",
                stale,
                sha,
            ],
            check=True,
            capture_output=True,
        )
        stale.with_suffix(".held").touch()
        assert remove_stale(held.root.parent) == 1
        assert not stale.exists()
        assert held.suite_dir.exists()
    with mirror.worktree(sha, "suite"):
        pass
