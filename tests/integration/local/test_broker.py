"""The embedded broker: a password, persistence over kill -9, one owner a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import redis

from service.local.broker import EmbeddedBroker
from service.local.errors import DataInUseError


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="kernelwatch-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_queued_messages_survive_kill_9_at_the_same_address(home):
    broker = EmbeddedBroker(home)
    url = broker.start()
    with redis.Redis.from_url(url) as client:
        client.rpush("queue", "message")
        client.execute_command("WAITAOF", "1", "0", "5000")
    broker.process.kill()
    broker.process.wait()
    broker.stop()
    assert broker.start() == url
    with redis.Redis.from_url(url) as client:
        assert client.lrange("queue", 0, -1) == [b"message"]
    broker.stop()


def test_password_is_asked_for_and_shown_in_no_process_list(home):
    with EmbeddedBroker(home) as broker:
        secret = broker.url().split(":")[2].split("@")[0]
        assert secret not in Path(f"/proc/{broker.process.pid}/cmdline").read_text()
        with redis.Redis(port=broker.port) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_never_runs_as_root(home):
    with EmbeddedBroker(home) as broker:
        assert Path(f"/proc/{broker.process.pid}").stat().st_uid != 0


def test_second_broker_on_the_same_folder_is_refused(home):
    with EmbeddedBroker(home), pytest.raises(DataInUseError, match=str(os.getpid())):
        EmbeddedBroker(home).start()
