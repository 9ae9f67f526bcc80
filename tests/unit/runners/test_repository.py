import os

import pytest

from runners import repository
from runners.errors import DiscoveryError
from service.contract import CONTRACT_VERSION, RunOrder, RunReason

ORDER = RunOrder(
    contract_version=CONTRACT_VERSION,
    run_id=1,
    attempt=1,
    lease_token="t",
    lease_s=90.0,
    repository="acme/kernels",
    clone_url="/nowhere",
    suite_path="suite",
    sha="a" * 40,
    reason=RunReason.PUSH,
    build_command="make",
    watched_paths=("csrc",),
    time_limit_s=600.0,
)


def table(text: str) -> str:
    return f"[tool.kernelwatch]\n{text}\n"


def test_without_a_table_the_order_stands():
    for pyproject in (None, "[project]\nname = 'x'\n"):
        settings = repository.settings_at(ORDER, pyproject)
        assert settings == repository.RepositorySettings("make", ("csrc",), 600.0)


def test_the_commit_decides_how_it_is_built():
    settings = repository.settings_at(ORDER, table("build_command = 'ninja'\nwatched_paths = ['a', 'b']"))
    assert (settings.build_command, settings.watched_paths) == ("ninja", ("a", "b"))


def test_an_empty_build_command_means_none():
    assert repository.settings_at(ORDER, table("build_command = ''")).build_command is None


@pytest.mark.parametrize(("asked_s", "given_s"), [("30", 30.0), ("86400", 600.0)])
def test_a_commit_may_shorten_the_time_limit_and_never_lengthen_it(asked_s, given_s):
    assert repository.settings_at(ORDER, table(f"time_limit_s = {asked_s}")).time_limit_s == given_s


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("not toml", "cannot be read"),
        ("tool = 3", "cannot be read"),
        ("[tool]\nkernelwatch = 3", "must be a table"),
        (table("build_command = 3"), "build_command must be text"),
        (table("watched_paths = 'csrc'"), "watched_paths must be a list"),
        (table("time_limit_s = 0"), "time_limit_s must be a positive number"),
        (table("time_limit_s = true"), "time_limit_s must be a positive number"),
        ("#" * (1 << 21), "larger than 1 MiB"),
    ],
)
def test_a_wrong_table_is_named_in_a_sentence(text, sentence):
    with pytest.raises(DiscoveryError, match=sentence):
        repository.settings_at(ORDER, text)


def test_a_build_is_shared_only_when_everything_that_decides_it_is_the_same():
    settings = repository.settings_at(ORDER, None)
    trees = {"csrc": "t1"}
    base = repository.build_key(suite_tree="s1", settings=settings, tree_of=trees.get)
    assert base == repository.build_key(suite_tree="s1", settings=settings, tree_of=trees.get)
    others = {
        repository.build_key(suite_tree="s2", settings=settings, tree_of=trees.get),
        repository.build_key(suite_tree="s1", settings=settings, tree_of={"csrc": "t2"}.get),
        repository.build_key(
            suite_tree="s1",
            settings=repository.settings_at(ORDER, table("build_command = 'make fast'")),
            tree_of=trees.get,
        ),
    }
    assert len(others) == 3
    assert base not in others


def test_the_builds_used_longest_ago_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(repository, "BUILDS_KEPT", 2)
    for age, key in enumerate(("old", "middle")):
        repository.build_dir(tmp_path, key)
        os.utime(tmp_path / f"{key}.used", (age, age))
    repository.build_dir(tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["middle", "new"]
