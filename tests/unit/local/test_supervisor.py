"""The supervisor's patience, with members and time made of nothing."""

from __future__ import annotations

import signal

import pytest

from service.local.errors import StartError
from service.local.supervisor import EmbeddedServer, Supervisor, describe_status


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Member:
    def __init__(self, name="web", journal=None):
        self.name, self.journal = name, journal if journal is not None else []
        self.status, self.refusals = None, 0

    def start(self):
        if self.refusals:
            self.refusals -= 1
            raise StartError("no room")
        self.status = None
        self.journal.append(f"start {self.name}")

    def poll(self):
        return self.status

    def stop(self):
        self.journal.append(f"stop {self.name}")


@pytest.fixture
def watched():
    said, clock, member = [], Clock(), Member()
    supervisor = Supervisor(say=said.append, clock=clock)
    supervisor.add(member)
    return supervisor, member, clock, said


def starts(member):
    return member.journal.count(f"start {member.name}")


def test_dead_member_is_started_again_after_a_pause(watched):
    supervisor, member, clock, said = watched
    member.status = -9
    supervisor.tick()
    assert said == ["web ended (signal SIGKILL); starting it again in 0.5 s"]
    supervisor.tick()
    assert starts(member) == 1
    clock.now = 0.6
    supervisor.tick()
    assert starts(member) == 2
    assert said[-1] == "web runs again"


def test_pause_doubles_up_to_half_a_minute_while_it_keeps_failing(watched):
    supervisor, member, clock, said = watched
    for _ in range(9):
        member.status = 1
        supervisor.tick()
        clock.now += 30.0
        supervisor.tick()
    pauses = [float(line.split(" in ")[1].split()[0]) for line in said if "again in" in line]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_member_that_lived_for_a_while_is_forgiven(watched):
    supervisor, member, clock, said = watched
    for _ in range(3):
        member.status = 1
        supervisor.tick()
        clock.now += 10.0
        supervisor.tick()
    clock.now += 60.0
    member.status = 1
    supervisor.tick()
    assert said[-1].endswith("again in 0.5 s")


def test_member_that_does_not_start_is_tried_again(watched):
    supervisor, member, clock, said = watched
    member.status, member.refusals = 1, 2
    for _ in range(20):
        supervisor.tick()
        clock.now += 1.0
    assert sum("did not start: no room" in line for line in said) == 2
    assert starts(member) == 2
    assert member.status is None


def test_members_stop_in_the_reverse_order_of_their_start():
    journal = []
    supervisor = Supervisor(say=journal.append)
    for name in ("database", "web", "runner"):
        supervisor.add(Member(name, journal))
    supervisor.stop_all()
    assert journal[3::2] == ["stopping runner", "stopping web", "stopping database"]
    assert journal[4::2] == ["stop runner", "stop web", "stop database"]
    supervisor.stop_all()
    assert len(journal) == 9


def test_the_first_ctrl_c_is_answered_at_once_and_only_once(watched):
    supervisor, _, _, said = watched
    supervisor.request_stop(signal.SIGINT, None)
    supervisor.request_stop(signal.SIGTERM, None)
    assert said == ["stopping ... (Ctrl-C again kills)"]
    assert supervisor.stopping


def test_members_stop_even_if_nobody_listens_any_more():
    def gone(_text):
        raise BrokenPipeError

    journal = []
    supervisor = Supervisor(say=gone)
    supervisor.add(Member("web", journal))
    supervisor.request_stop(signal.SIGHUP, None)
    supervisor.stop_all()
    assert journal == ["start web", "stop web"]


def test_member_whose_first_start_fails_is_stopped_with_the_rest():
    journal = []
    supervisor = Supervisor(say=journal.append)
    broken = Member("web", journal)
    broken.refusals = 1
    with pytest.raises(StartError):
        supervisor.add(broken)
    supervisor.stop_all()
    assert journal == ["stopping web", "stop web"]


def test_request_to_stop_ends_the_run(watched):
    supervisor, *_ = watched
    supervisor.sleep = lambda _: supervisor.request_stop(signal.SIGTERM, None)
    supervisor.run(lambda: False)
    assert supervisor.stopping


class MovingServer:
    process = None
    port = None
    stopped = 0

    def __init__(self, ports):
        self.ports = iter(ports)

    def start(self):
        self.port = next(self.ports)
        return f"redis://127.0.0.1:{self.port}"

    def stop(self):
        self.stopped += 1


def test_server_that_comes_back_elsewhere_waits_for_its_port():
    server = MovingServer([1000, 2000, 1000])
    member = EmbeddedServer("broker", server)
    member.start()
    with pytest.raises(StartError, match="lost its port"):
        member.start()
    assert server.port == 1000
    member.start()
    assert member.url == "redis://127.0.0.1:1000"


def test_exit_statuses_are_words():
    assert [describe_status(status) for status in (1, -9, -99)] == ["status 1", "signal SIGKILL", "signal 99"]
