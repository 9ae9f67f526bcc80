"""The line protocol: a whole case over two text streams."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from service.stats.bisect_cli import Conversation, ProtocolError, play

SEGMENT = {"sd": 0.01, "count": 20}


class Bench:
    """Answers requests as a bench would; both ends of the conversation in one object."""

    def __init__(self, *, culprit: int, n: int = 16, broken: frozenset[int] = frozenset(), workers: int = 1):
        self.culprit, self.broken = culprit, broken
        self.rng = np.random.default_rng(5)
        self.measured = 0
        self.answer: dict[str, object] | None = None
        self.widest = 0
        case = {
            "op": "case",
            "n": n,
            "weights": [0.0] + [1.0] * n,
            "before": {"mean": 1.0, **SEGMENT},
            "after": {"mean": 1.1, **SEGMENT},
            "build_s": 120.0,
            "measure_s": 20.0,
            "max_measurements": 300,
            "workers": workers,
            "layout_sd": 0.0,
        }
        self.lines = [json.dumps(case)]

    def readline(self) -> str:
        return self.lines.pop(0) if self.lines else ""

    def flush(self) -> None:
        pass

    def write(self, text: str) -> None:
        ask = json.loads(text)
        if ask["op"] == "answer":
            self.answer = ask
        elif ask["op"] == "build":
            self.lines.append(json.dumps({"ok": ask["commit"] not in self.broken}))
        elif ask["op"] == "measure":
            self.lines.append(json.dumps({"values": self.times(ask["commits"])}))
        else:
            self.widest = max(self.widest, len(ask["batches"]))
            self.lines.append(json.dumps({"values": [self.times(b) for b in ask["batches"]]}))

    def times(self, commits: list[int]) -> list[float]:
        self.measured += len(commits)
        return [math.exp(1.0 + 0.1 * (c >= self.culprit) + self.rng.normal(0, 0.01)) for c in commits]


def test_a_case_is_answered_with_the_commit_and_its_sign():
    bench = Bench(culprit=11)
    play(Conversation(source=bench, sink=bench))
    assert bench.answer is not None
    assert bench.answer["verdict"] == "culprit"
    assert bench.answer["culprits"] == [[10, 11, 1]]
    assert bench.answer["confidence"] >= 0.95
    assert bench.measured < 60


def test_broken_builds_widen_the_answer():
    bench = Bench(culprit=11, broken=frozenset({10, 11}))
    play(Conversation(source=bench, sink=bench))
    assert bench.answer["culprits"] == [[9, 12, 1]]


def test_workers_are_used_side_by_side():
    bench = Bench(culprit=40, n=64, workers=4)
    play(Conversation(source=bench, sink=bench))
    assert bench.answer["culprits"] == [[39, 40, 1]]
    assert bench.widest == 4


def test_nobody_is_blamed_where_the_ends_are_equal():
    bench = Bench(culprit=99)
    play(Conversation(source=bench, sink=bench))
    assert bench.answer["verdict"] == "no_change"
    assert bench.answer["culprits"] == []


def test_a_conversation_that_breaks_off_is_an_error():
    bench = Bench(culprit=3)
    bench.lines = []
    with pytest.raises(ProtocolError):
        play(Conversation(source=bench, sink=bench))
