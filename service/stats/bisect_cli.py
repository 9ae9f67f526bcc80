"""`bisect-policy`: the engine behind a line protocol, for judging it on simulated ranges.

One JSON object a line.  In: a case, then answers.  Out: build, measure or parallel requests, then the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click

from service.stats.bisect import (
    BisectProblem,
    Candidate,
    Failure,
    FailureKind,
    Observation,
    Outcome,
    Probe,
    Verdict,
    Wait,
    next_steps,
)


class ProtocolError(RuntimeError):
    """The other side sent something that is no answer."""


class Conversation:
    """One case over a pair of text streams."""

    def __init__(self, *, source: IO[str], sink: IO[str]) -> None:
        self._source, self._sink = source, sink

    def case(self) -> dict[str, Any]:
        """The first line."""
        return self._read()

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a request and read its answer."""
        self.tell(**message)
        return self._read()

    def tell(self, **message: Any) -> None:
        """Send a line."""
        self._sink.write(json.dumps(message) + "\n")
        self._sink.flush()

    def _read(self) -> dict[str, Any]:
        line = self._source.readline()
        if not line:
            raise ProtocolError("the conversation ended without an answer")
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ProtocolError(f"not an object: {line!r}")
        return data


def problem_of(case: dict[str, Any]) -> BisectProblem:
    """The case's task in the engine's words; times are in milliseconds there, in seconds here."""
    before, after = case["before"], case["after"]
    weights = case["weights"]
    pooled = (before["sd"] ** 2 * before["count"] + after["sd"] ** 2 * after["count"]) / (
        before["count"] + after["count"]
    )
    return BisectProblem(
        candidates=tuple(
            Candidate(p, f"commit-{p}", prior_weight=float(weights[p]), cost_build_s=float(case["build_s"]))
            for p in range(1, case["n"] + 1)
        ),
        alarm_effect=after["mean"] - before["mean"],
        alarm_effect_se=float((pooled * (1 / before["count"] + 1 / after["count"])) ** 0.5),
        noise_sd=float(pooled**0.5),
        environment_changed=False,
        budget_s=case["max_measurements"] * float(case["measure_s"]),
        measure_cost_s=float(case["measure_s"]),
        workers=int(case.get("workers", 1)),
        build_offset_sd=float(case.get("layout_sd", 0.0)),
        before_level=before["mean"] + MS,
        after_level=after["mean"] + MS,
    )


MS = -6.907755278982137  # log(1e-3)


def play(conversation: Conversation) -> Outcome | None:
    """Decide, measure, decide again, until the engine has a verdict; None when the budget ran out."""
    problem = problem_of(conversation.case())
    log: list[Observation | Failure] = []
    built: set[int] = set()
    batch = 0
    while True:
        probes = next_steps(problem, log, count=max(problem.workers, 1))
        if isinstance(probes, Outcome):
            conversation.tell(op="answer", **answer_of(probes))
            return probes
        if isinstance(probes, Wait):
            raise ProtocolError("nothing runs, yet the engine waits")
        if len(probes) == 1:
            failure = _build(conversation, probes[0], built)
            if failure is not None:
                log.append(failure)
                continue
        reply = _measure(conversation, probes)
        if reply.get("error") == "build":
            log.append(Failure(int(reply["commit"]), FailureKind.BUILD))
            continue
        if "error" in reply:
            conversation.tell(op="answer", verdict="inconclusive", culprits=[], confidence=0.0, note=str(reply))
            return None
        built.update(position for probe in probes for position in probe.order)
        for worker, (probe, values) in enumerate(zip(probes, reply["values"], strict=True)):
            batch += 1
            log += list(_observations(probe, values, batch=batch, worker=worker))


def _build(conversation: Conversation, probe: Probe, built: set[int]) -> Failure | None:
    for position in dict.fromkeys(probe.order):
        if position not in built:
            if not conversation.ask(op="build", commit=position).get("ok"):
                return Failure(position, FailureKind.BUILD)
            built.add(position)
    return None


def _measure(conversation: Conversation, probes: Sequence[Probe]) -> dict[str, Any]:
    if len(probes) == 1:
        reply = conversation.ask(op="measure", commits=list(probes[0].order))
        return reply if "error" in reply else {"values": [reply["values"]]}
    return conversation.ask(op="parallel", batches=[list(p.order) for p in probes])


def _observations(probe: Probe, values: list[float], *, batch: int, worker: int) -> Iterator[Observation]:
    for position, value in zip(probe.order, values, strict=True):
        yield Observation(batch, str(worker), "", position, "", value * 1e-3, probe.phase)


def answer_of(outcome: Outcome) -> dict[str, Any]:
    """The verdict as the protocol wants it: half-open ranges with a sign."""
    verdict = outcome.verdict
    blamed = verdict in {Verdict.CULPRIT, Verdict.CULPRITS, Verdict.RANGE}
    return {
        "verdict": "culprit" if blamed else str(verdict),
        "culprits": [[b.lo, b.hi, b.sign] for b in outcome.blames],
        "confidence": outcome.probability,
        "note": outcome.reason,
    }


@click.command("bisect-policy")
def bisect_policy() -> None:
    """Answer one bisection case given as JSON lines on standard input."""
    play(Conversation(source=sys.stdin, sink=sys.stdout))


if __name__ == "__main__":
    bisect_policy.main()
