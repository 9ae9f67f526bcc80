"""Whatever a commit's kernels do ends as a failed measurement with its reason; the good kernel and the next run are fine."""

import re
import socket
from pathlib import Path

import pytest

import runners
from runners.harness import harness_hash
from service.contract import MeasurementStatus

from . import hostile
from .processes import all_gone

CRASHED, TIMED_OUT = MeasurementStatus.CRASHED, MeasurementStatus.TIMED_OUT

PATIENCE_S = 15.0

CASES = {
    "infinite loop": (hostile.INFINITE_LOOP, TIMED_OUT, "no answer to 'prepare' within 15 s"),
    "8 GB allocation": (hostile.EIGHT_GIGABYTES, CRASHED, "MemoryError"),
    "1 GB of output": (hostile.ONE_GIGABYTE_OF_OUTPUT, CRASHED, "printed more than 8 MiB"),
    "exit": (hostile.EXIT, CRASHED, "ended with status 0 without an answer"),
    "segmentation fault": (hostile.SEGFAULT, CRASHED, "killed by SIGSEGV"),
    "writes into the harness": (hostile.HARNESS_WRITER, CRASHED, "Read-only|PermissionError"),
    "moves the harness away": (hostile.HARNESS_REPLACER, CRASHED, "Read-only|PermissionError|cross-device"),
    "writes into its own source": (hostile.SOURCE_WRITER, CRASHED, "Read-only|PermissionError"),
    "fork bomb": (hostile.FORK_BOMB, CRASHED, "BlockingIOError|more than 64 processes"),
    "garbage on the result channel": (hostile.GARBAGE, CRASHED, "not JSON"),
    "a number that is none": (hostile.NOT_FINITE, CRASHED, "not JSON"),
    "a forged answer": (hostile.FORGED_ANSWER, CRASHED, "was not asked for"),
    "a huge line": (hostile.HUGE_LINE, CRASHED, "longer than 16 MiB"),
    "closes the result channel": (hostile.CLOSED_CHANNEL, CRASHED, "closed its result channel"),
    "many big processes": (hostile.MANY_BIG_PROCESSES, CRASHED, "together used more than 1024 MiB"),
}


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch):
    monkeypatch.setattr("runners.measure.team.PREPARE_TIMEOUT_S", PATIENCE_S)


def by_name(report):
    return {m.benchmark: m for m in report.measurements}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_kernel_fails_alone_and_the_next_run_is_fine(name, repository, measure, tmp_path):
    code, status, reason = CASES[name]
    before = harness_hash()
    found = by_name(measure(repository.hostile(code)))

    assert found["hostile"].status is status
    assert re.search(reason, found["hostile"].error), found["hostile"].error
    assert found["hostile"].value_s is None
    assert found["good"].status is MeasurementStatus.OK
    assert all_gone(str(tmp_path / "cache"))
    assert list((tmp_path / "cache" / "scratch").iterdir()) == []
    assert harness_hash() == before

    again = by_name(measure(repository.good()))
    assert again["good"].status is MeasurementStatus.OK


def test_a_kernel_cannot_reach_the_database_port(repository, measure):
    with socket.create_server(("127.0.0.1", 0)) as database:
        database.settimeout(0.2)
        found = by_name(measure(repository.hostile(hostile.PORT_OPENER.format(port=database.getsockname()[1]))))
        with pytest.raises(TimeoutError):
            database.accept()
    assert found["hostile"].status is CRASHED
    assert re.search("PermissionError|Network is unreachable", found["hostile"].error)
    assert found["good"].status is MeasurementStatus.OK


def test_a_daemon_left_behind_is_gone_after_the_run(repository, measure, tmp_path):
    found = by_name(measure(repository.hostile(hostile.DAEMON)))
    assert found["hostile"].status is MeasurementStatus.OK
    assert all_gone(str(tmp_path / "cache"))


def test_the_report_says_which_walls_held(repository, measure):
    facts = measure(repository.good()).environment.facts
    assert set(facts) >= {"sandbox_isolated", "sandbox_user", "sandbox_files", "sandbox_sockets"}


def test_the_harness_in_use_is_the_installed_one_not_the_commits(repository, measure):
    """A commit that brings its own `runners` package is measured by ours."""
    found = by_name(measure(repository.commit(hostile.GOOD_SUITE | {"runners/__init__.py": "raise SystemExit(3)"})))
    assert found["good"].status is MeasurementStatus.OK
    assert Path(runners.__file__).read_text().startswith('"""Runners')
