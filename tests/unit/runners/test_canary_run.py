"""A canary run times the machine and nothing else."""

from __future__ import annotations

import pytest

from runners.canary_run import COPIES, FRAMES, PROCESSES, measure_canaries
from runners.errors import ChildError, ChildGarbageError
from runners.measure.protocol import Flag
from tests.unit.runners.measure.scripted import QuietDevice


class Spawned:
    """A child that answers with canaries of a script, and remembers what it was asked."""

    def __init__(self, frames, refuses=None):
        self.frames, self.refuses = frames, refuses
        self.pid, self.asked, self.closed = 7, [], False

    def request(self, message, *, timeout_s):
        self.asked.append(message["op"])
        if message["op"] == self.refuses:
            return {"ok": False, "error": "no BLAS"}
        if message["op"] == "hello":
            return {"ok": True}
        return {"ok": True, "canary": next(self.frames)}

    def close(self):
        self.closed = True


class Busy(QuietDevice):
    def judge(self, before, after, reply):
        assert len(reply["wall_s"]) == FRAMES
        return (Flag.CONTENDED,)


def run(children, device=None):
    waiting = iter(children)
    return measure_canaries(
        spawn=lambda: next(waiting),
        device=device or QuietDevice(),
        reference_s=1e-3,
        progress=lambda *_: True,
        clock=lambda: 0.0,
        pause=lambda: None,
    )


def frames(value_s):
    while True:
        yield [value_s * 1.1, value_s]


def test_every_process_is_asked_for_canaries_and_for_nothing_else():
    children = [Spawned(frames(1e-3)) for _ in range(PROCESSES)]
    found = run(children)
    assert found.compute_s == pytest.approx((1.1e-3, 1e-3))
    assert found.memory_s == pytest.approx((1.1e-3, 1e-3))
    assert found.flags == ()
    for child in children:
        assert child.asked == ["hello", *["canary"] * (FRAMES + 1), *["copy_canary"] * COPIES]
        assert child.closed


def test_a_burst_in_one_process_does_not_move_the_canary():
    disturbed = [Spawned(frames(2e-3)), *[Spawned(frames(1e-3)) for _ in range(PROCESSES - 1)]]
    assert run(disturbed).compute_s[1] == pytest.approx(1e-3)
    sick = [Spawned(frames(1.2e-3)) for _ in range(PROCESSES)]
    assert run(sick).compute_s[1] == pytest.approx(1.2e-3)


def test_a_machine_that_others_keep_busy_says_so():
    children = [Spawned(frames(1e-3)) for _ in range(PROCESSES)]
    assert run(children, Busy()).flags == (Flag.CONTENDED,)


def test_a_canary_that_cannot_run_is_a_failure_with_its_reason():
    child = Spawned(frames(1e-3), refuses="canary")
    with pytest.raises(ChildError, match="no BLAS"):
        run([child])
    assert child.closed


def test_an_answer_that_is_no_canary_is_refused():
    with pytest.raises(ChildGarbageError):
        run([Spawned(iter([["fast"]]))])
