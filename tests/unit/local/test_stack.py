"""What a stack remembers, and who may know what."""

from __future__ import annotations

import socket

import pytest

from service.local.errors import StartError
from service.local.stack import Memory, Stack, StackOptions
from service.settings import Settings


def test_memory_keeps_numbers_and_makes_each_secret_once(tmp_path):
    memory = Memory(tmp_path / "m.json")
    assert memory.number("web") is None
    memory.keep("web", 8080)
    secret = memory.secret("admin_token")
    again = Memory(tmp_path / "m.json")
    assert (again.number("web"), again.secret("admin_token")) == (8080, secret)
    assert len(secret) > 30
    assert (tmp_path / "m.json").stat().st_mode & 0o077 == 0


def test_damaged_memory_costs_only_the_old_numbers(tmp_path):
    (tmp_path / "m.json").write_text('{"web": 80')
    memory = Memory(tmp_path / "m.json")
    assert memory.number("web") is None
    memory.keep("web", 81)
    assert memory.number("web") == 81


def stack(tmp_path, **given):
    return Stack(Settings(data_dir=tmp_path, **given), StackOptions(), say=lambda _: None)


def test_remembered_port_is_used_again_unless_it_is_taken(tmp_path):
    one = stack(tmp_path)
    port = one._port("messages")
    assert one._port("messages") == port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert one._port("messages") != port


def test_chosen_port_that_is_taken_is_refused_and_a_default_one_replaced(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match="is taken"):
            stack(tmp_path, port=port)._web_port()


def test_environment_leaves_out_what_a_runner_must_not_know(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    one = stack(tmp_path)
    one._variables = {"KERNELWATCH_ADMIN_TOKEN": "x", "REDIS_URL": "redis://"}
    known = one.environment(("DATABASE_URL", "KERNELWATCH_ADMIN_TOKEN"))
    assert known["REDIS_URL"] == "redis://"
    assert not {"DATABASE_URL", "KERNELWATCH_ADMIN_TOKEN"} & known.keys()
