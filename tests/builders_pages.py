"""Builders of stored history: a believable repository with steps, failures, a bisection and messages; and a huge one.

Everything is seeded, and the moment `NOW` is fixed, so that pages and figures built from it can be compared.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from sqlalchemy import insert
from sqlalchemy.orm import Session

from service.store import tables as t
from tests.builders_suite import (
    ATTENTION_STEP,
    AUTHORS,
    BROKEN_BUILD,
    FLAGGED,
    GEMM_STEP,
    NOW,
    SHAPES,
    STEP,
    SUBJECTS,
    WRONG_RESULT,
    Shape,
    gemm,
    level,
    sha_of,
)


@dataclass
class History:
    """What was built, for tests that want to name a row."""

    repository: t.Repository
    commits: list[t.GitCommit]
    series: list[t.Series]
    shapes: tuple[Shape, ...]
    runner: t.Runner
    environment: t.Environment
    gemm: t.Regression | None = None
    attention: t.Regression | None = None
    moe: t.Regression | None = None


def repository(session: Session, *, name: str = "tensor-works/kernels") -> t.Repository:
    row = t.Repository(name=name, clone_url=f"https://example.org/{name}.git", webhook_secret="s", pools=["cpu"])
    session.add(row)
    session.flush()
    return row


def commits(session: Session, repo: t.Repository, *, count: int = len(SUBJECTS)) -> list[t.GitCommit]:
    rows = []
    for position in range(count):
        author, email = AUTHORS[position % len(AUTHORS)]
        merge = position in (5, 30)
        parents = [sha_of(position - 1)] if position else []
        rows.append(
            t.GitCommit(
                repository_id=repo.id,
                sha=sha_of(position),
                parents=[*parents, sha_of(position, "side")] if merge else parents,
                position=position,
                suite_tree=sha_of(position - (position in (2, 8, 16, 26, 28, 34, 36)), "tree"),
                author=author,
                author_email=email,
                subject=SUBJECTS[position % len(SUBJECTS)],
                committed_at=NOW - timedelta(hours=6 * (count - position)),
            )
        )
    session.add_all(rows)
    session.flush()
    return rows


def _workloads(session: Session, repo: t.Repository, shapes: tuple[Shape, ...]) -> list[t.Series]:
    benchmarks: dict[str, t.Benchmark] = {}
    series = []
    for shape in shapes:
        benchmark = benchmarks.get(shape.benchmark)
        if benchmark is None:
            benchmark = t.Benchmark(
                repository_id=repo.id, name=shape.benchmark, version=1, family=shape.family, problem=shape.problem,
                device="cpu", control=shape.control,
            )  # fmt: skip
            session.add(benchmark)
            session.flush()
            benchmarks[shape.benchmark] = benchmark
        axes = ",".join(f"{name}={value}" for name, value in shape.axes.items())
        workload = t.Workload(
            benchmark_id=benchmark.id, key=f"{shape.benchmark}[{axes}]", axes=shape.axes, flops=shape.flops,
            bytes=shape.bytes,
        )  # fmt: skip
        session.add(workload)
        session.flush()
        row = t.Series(
            repository_id=repo.id, workload_id=workload.id, metric="time", direction="lower", pool="cpu",
            comparable_key="cpu:epyc-9454/gcc-12.2/linux-6.1", harness_epoch=1, detected_at=NOW - timedelta(hours=1),
            verdict=None if shape.control else "no_change",
            verdict_reason=None if shape.control else "within the noise of its stable segment",
            detection={"noise": shape.noise, "detectable": shape.noise * 3.4},
        )  # fmt: skip
        if shape.noise > 0.05:
            row.verdict, row.verdict_reason = "cannot_tell", "its noise of 6.0 % hides a step of 5 %"
        session.add(row)
        series.append(row)
    session.flush()
    return series


def measurement(
    *, run: t.Run, series: t.Series, commit: t.GitCommit, shape: Shape, rng: Random, processes: int = 5
) -> t.Measurement:
    """A good measurement with its raw samples: five processes of three blocks, each process a little apart."""
    true_s = level(shape, commit.position or 0)
    shift = rng.gauss(0, shape.noise)
    wall, cpu, sizes, lanes, canaries = [], [], [], [], []
    for process in range(processes):
        own = math.exp(shift + rng.gauss(0, shape.noise / 2))
        for _ in range(3):
            size = rng.randint(6, 9)
            block = [
                true_s * own * math.exp(abs(rng.gauss(0, 0.004)) + 0.02 * (rng.random() < 0.03)) for _ in range(size)
            ]
            wall += block
            cpu += [sample * 0.997 for sample in block]
            sizes.append(size)
            lanes.append(process)
            canaries.append(1.2e-3 * math.exp(rng.gauss(0, 0.003)))
    value = sorted(wall)[len(wall) // 2]
    return t.Measurement(
        run_id=run.id, series_id=series.id, commit_id=commit.id, status="ok", n=len(wall), value_s=value,
        half_width_s=value * shape.noise * 1.2, median_s=value, spread=0.01, clock="wall",
        flags=[FLAGGED] if rng.random() < 0.06 else [],
        code_hash=hashlib.sha1(f"{shape.benchmark}{true_s}".encode()).hexdigest(),
        output_hash=hashlib.sha1(str(shape.axes).encode()).hexdigest(),
        static_facts={"instructions": 812 if true_s == shape.base_s else 1033, "vector width": 8},
        measured_at=run.finished_at or NOW, wall_s=wall, cpu_s=cpu, block_size=sizes, block_process=lanes,
        block_order=list(range(len(sizes))), block_canary_wall_s=canaries,
        block_canary_cpu_s=[canary * 0.998 for canary in canaries], block_flags=[[] for _ in sizes],
    )  # fmt: skip


def failed_measurement(*, run, series, commit, status: str, error: str) -> t.Measurement:
    return t.Measurement(
        run_id=run.id, series_id=series.id, commit_id=commit.id, status=status, error=error, n=0, clock="wall",
        measured_at=run.finished_at or NOW, wall_s=[], cpu_s=[], block_size=[], block_process=[], block_order=[],
        block_canary_wall_s=[], block_canary_cpu_s=[], block_flags=[],
    )  # fmt: skip


def run_row(history: History, commit: t.GitCommit, *, reason: str = "push", state: str = "reported", **more) -> t.Run:
    ended = commit.committed_at + timedelta(minutes=14)
    fields = {
        "repository_id": history.repository.id, "commit_id": commit.id, "pool": "cpu", "reason": reason,
        "state": state, "dedupe_key": f"{reason}:{commit.sha}:{len(more)}:{more.get('priority', 0)}", "attempt": 1,
        "runner_id": history.runner.id, "created_at": commit.committed_at + timedelta(minutes=1),
        "started_at": ended - timedelta(minutes=6), "finished_at": ended, "device_s": 41.0 + commit.id % 7,
        "environment_id": history.environment.id, "harness_epoch": 1, "canary_wall_s": 1.2e-3, "canary_cpu_s": 1.19e-3,
        "done": 12, "total": 12,
    }  # fmt: skip
    return t.Run(**{**fields, **more})


def fleet(session: Session) -> tuple[t.Runner, t.Environment]:
    facts = {"cpu": "AMD EPYC 9454", "compiler": "gcc 12.2.0", "kernel": "6.1.0-28", "governor": "performance"}
    runner = t.Runner(
        name="bench-01", pool="cpu", token_hash="a" * 64, device="cpu:AMD EPYC 9454", comparable_key="epyc",
        facts=facts, heartbeat_at=NOW - timedelta(seconds=9),
    )  # fmt: skip
    silent = t.Runner(
        name="bench-02", pool="h200", token_hash="b" * 64, device="NVIDIA H200", comparable_key="h200",
        facts={"driver": "580.95"}, heartbeat_at=NOW - timedelta(hours=7),
    )  # fmt: skip
    environment = t.Environment(
        fingerprint=hashlib.sha1(b"environment").hexdigest(),
        comparable_key="epyc",
        device="cpu:AMD EPYC 9454",
        facts=facts,
    )
    session.add_all([runner, silent, environment])
    session.flush()
    return runner, environment


def history(session: Session, *, seed: int = 7) -> History:
    """12 series over 40 commits: a fixed improvement, a named regression, one under bisection, failures, messages."""
    rng = Random(seed)
    repo = repository(session)
    runner, environment = fleet(session)
    built = History(repo, commits(session, repo), _workloads(session, repo, SHAPES), SHAPES, runner, environment)
    measured = [p for p in range(40) if p not in (2, 8, 16, 26, 28, 33, 34, 35, 36)]
    for position in measured:
        _measure_commit(session, built, position, rng)
    _skipped_and_waiting(session, built)
    built.attention = _closed_improvement(session, built)
    built.gemm = _named_regression(session, built, rng)
    built.moe = _searched_regression(session, built, rng)
    _messages(session, built)
    session.commit()
    return built


def _measure_commit(session: Session, built: History, position: int, rng: Random) -> None:
    commit = built.commits[position]
    if position == BROKEN_BUILD:
        log = "gemm.c:118:9: error: expected ';' before 'for'\n  118 |         for (int j = 0; j < NR; ++j)\n"
        session.add(
            run_row(built, commit, state="failed", failure_stage="build", failure_kind="permanent",
                    failure_reason="gcc ended with status 1: gemm.c:118:9: error: expected ';'", failure_log=log)
        )  # fmt: skip
        return
    run = run_row(built, commit, flags=[FLAGGED] if position % 11 == 3 else [])
    session.add(run)
    session.flush()
    for series, shape in zip(built.series, built.shapes, strict=True):
        if position == WRONG_RESULT and shape.benchmark == "moe_grouped":
            error = "largest error 0.31 at (3, 17), allowed 1e-4"
            session.add(failed_measurement(run=run, series=series, commit=commit, status="wrong_result", error=error))
        elif position >= 38 and shape.axes.get("seq") == 2048:
            error = "the child was killed by signal 11 in block 2"
            session.add(failed_measurement(run=run, series=series, commit=commit, status="crashed", error=error))
        else:
            session.add(measurement(run=run, series=series, commit=commit, shape=shape, rng=rng))


def _skipped_and_waiting(session: Session, built: History) -> None:
    for position in (2, 8, 16, 34, 36):
        session.add(
            run_row(built, built.commits[position], state="skipped", runner_id=None, device_s=None, environment_id=None)
        )
    session.add(run_row(built, built.commits[39], reason="nightly", state="queued", runner_id=None, device_s=None,
                        finished_at=None, started_at=None, created_at=NOW - timedelta(minutes=4)))  # fmt: skip
    session.add(run_row(built, built.commits[38], reason="nightly", state="measuring", device_s=None, finished_at=None,
                        started_at=NOW - timedelta(minutes=2), lease_until=NOW + timedelta(minutes=1), stage="measure",
                        done=5, created_at=NOW - timedelta(minutes=6)))  # fmt: skip
    session.add(t.WebhookDelivery(guid="g1", repository_id=built.repository.id, event="push", received_at=NOW - timedelta(hours=6),
                                  handled_at=NOW - timedelta(hours=6)))  # fmt: skip
    session.flush()


def change_point(built: History, regression: t.Regression, index: int, *, good: int, bad: int, effect: float, **more):
    shape = built.shapes[index]
    before = level(shape, good)
    fields = {
        "series_id": built.series[index].id, "commit_id": built.commits[bad].id,
        "previous_commit_id": built.commits[good].id, "regression_id": regression.id,
        "direction": regression.direction, "detector": "scan", "detector_version": 1, "before_s": before,
        "after_s": before * (1 + effect), "effect": effect, "effect_low": effect - 0.008, "effect_high": effect + 0.008,
        "z": 31.0 - index, "p_value": 1e-12, "confirmed_at": NOW - timedelta(hours=5),
    }  # fmt: skip
    return t.ChangePoint(**{**fields, **more})


def regression(built: History, *, direction: str, good: int, bad: int, effect: float, **more) -> t.Regression:
    fields = {
        "repository_id": built.repository.id, "direction": direction, "good_commit_id": built.commits[good].id,
        "bad_commit_id": built.commits[bad].id, "effect": effect, "effect_low": effect - 0.008,
        "effect_high": effect + 0.008, "created_at": NOW - timedelta(hours=5), "state": "confirmed",
        "confirmed_at": NOW - timedelta(hours=5), "severity": "high",
    }  # fmt: skip
    return t.Regression(**{**fields, **more})


def _closed_improvement(session: Session, built: History) -> t.Regression:
    at = ATTENTION_STEP
    row = regression(built, direction="improvement", good=at - 1, bad=at, effect=-0.11, state="attributed",
                     culprit_commit_id=built.commits[at].id, severity="low", created_at=NOW - timedelta(days=6))  # fmt: skip
    session.add(row)
    session.flush()
    session.add_all(change_point(built, row, index, good=at - 1, bad=at, effect=-0.11) for index in (6, 7, 8))
    return row


def _named_regression(session: Session, built: History, rng: Random) -> t.Regression:
    at = GEMM_STEP
    row = regression(built, direction="regression", good=at - 1, bad=at, effect=STEP, state="attributed",
                     culprit_commit_id=built.commits[at].id, attributed_at=NOW - timedelta(hours=4))  # fmt: skip
    session.add(row)
    session.flush()
    steps = [change_point(built, row, index, good=at - 1, bad=at, effect=STEP - 0.004 * index) for index in range(4)]
    session.add_all(steps)
    shas = [built.commits[position].sha for position in range(25, 30)]
    beliefs = (("ends", [25, 29], [0.02, 0.21, 0.3, 0.25, 0.22]), ("search", [25, 27, 29], [0.004, 0.03, 0.93, 0.02, 0.016]),
               ("sandwich", [26, 27], [0.001, 0.004, 0.991, 0.003, 0.001]))  # fmt: skip
    search = t.Bisection(
        regression_id=row.id, state="done", pool="cpu", series_id=built.series[0].id, commit_shas=shas, problem={},
        verdict="culprit", budget_s=900, spent_s=84.2, created_at=NOW - timedelta(hours=5),
        finished_at=NOW - timedelta(hours=4),
        outcome={"positions": [2], "probability": 0.991, "reason": "Fresh pairs of the commit and its parent agree.",
                 "effect": STEP, "posterior": [0.004, 0.991, 0.003, 0.001]},
    )  # fmt: skip
    session.add(search)
    session.flush()
    for seq, (phase, positions, belief) in enumerate(beliefs):
        reason = "bisection" if seq else "confirm"
        run = _probe_run(session, built, positions, rng, reason=reason, priority=seq + 1, device_s=28.1)
        for step in steps if not seq else ():
            step.confirmed_run_id, step.confirmed_pairs = run.id, 8
        places = [position - 25 for position in positions]
        session.add(
            t.BisectionProbe(bisection_id=search.id, seq=seq, run_id=run.id, position=places[-1], partners=places[:-1],
                             measure_order=places, phase=phase, posterior=belief, finished_at=run.finished_at)
        )  # fmt: skip
    return row


def _probe_run(session: Session, built: History, positions: list[int], rng: Random, **more) -> t.Run:
    subject = built.commits[positions[-1]]
    run = run_row(built, subject, partner_shas=[built.commits[p].sha for p in positions[:-1]], **more)
    session.add(run)
    session.flush()
    for position in positions:
        for index in (0, 1, 4):
            session.add(
                measurement(run=run, series=built.series[index], commit=built.commits[position],
                            shape=built.shapes[index], rng=rng, processes=8)
            )  # fmt: skip
    return run


def _searched_regression(session: Session, built: History, rng: Random) -> t.Regression:
    row = regression(built, direction="regression", good=33 - 1, bad=37, effect=0.31, severity="critical",
                     created_at=NOW - timedelta(minutes=40))  # fmt: skip
    session.add(row)
    session.flush()
    session.add_all(change_point(built, row, index, good=32, bad=37, effect=0.31) for index in (9, 10))
    search = t.Bisection(
        regression_id=row.id, state="running", pool="cpu", series_id=built.series[9].id, problem={}, budget_s=900,
        commit_shas=[built.commits[position].sha for position in range(32, 38)], spent_s=33.0,
    )  # fmt: skip
    session.add(search)
    session.flush()
    session.add_all(
        [
            t.BisectionProbe(bisection_id=search.id, seq=0, position=5, partners=[0], measure_order=[0, 5], phase="ends",
                             posterior=[0.01, 0.34, 0.02, 0.3, 0.02, 0.31], finished_at=NOW - timedelta(minutes=20)),
            t.BisectionProbe(bisection_id=search.id, seq=1, position=3, partners=[0, 5], measure_order=[0, 3, 5],
                             phase="search"),
        ]
    )  # fmt: skip
    return row


def _messages(session: Session, built: History) -> None:
    mail = t.Channel(repository_id=built.repository.id, name="kernels@example.org", kind="email", config={})
    slack = t.Channel(repository_id=built.repository.id, name="#perf", kind="slack_webhook", config={})
    session.add_all([mail, slack])
    session.flush()
    assert built.gemm is not None
    assert built.moe is not None
    for channel in (mail, slack):
        for event, hours in (("opened", 5), ("attributed", 4)):
            session.add(
                t.Notification(channel_id=channel.id, regression_id=built.gemm.id, event=event, state="sent", attempts=1,
                               sent_at=NOW - timedelta(hours=hours), created_at=NOW - timedelta(hours=hours))
            )  # fmt: skip
    session.add(t.Notification(channel_id=mail.id, regression_id=built.moe.id, event="opened", state="sent", attempts=1,
                               created_at=NOW - timedelta(minutes=40), sent_at=NOW - timedelta(minutes=39)))  # fmt: skip
    session.add(t.Notification(channel_id=slack.id, regression_id=built.moe.id, event="opened", state="failed", attempts=3,
                               created_at=NOW - timedelta(minutes=40), error="404 no_service: the webhook was removed"))  # fmt: skip
    session.add(t.AuditEvent(actor="wen", action="regression.acknowledged", subject_type="regression",
                             subject_id=built.attention.id, before={"state": "attributed"}, after={"state": "acknowledged"}))  # fmt: skip


def many_series(session: Session, *, count: int, points: int, seed: int = 3) -> t.Repository:
    """A big repository: `count` series of `points` commits each, inserted in bulk."""
    rng = Random(seed)
    repo = repository(session, name="tensor-works/everything")
    line = commits(session, repo, count=points)
    runner, environment = fleet(session)
    built = History(repo, line, [], (), runner, environment)
    runs = [run_row(built, commit) for commit in line]
    session.add_all(runs)
    session.flush()
    shapes = tuple(
        gemm(64 + index, 128, 256, base_s=1e-3 * (1 + index % 9), name=f"gemm_v{index % 40:02d}")
        for index in range(count)
    )
    series = _workloads(session, repo, shapes)
    rows = []
    for one, shape in zip(series, shapes, strict=True):
        for run, commit in zip(runs, line, strict=True):
            value = shape.base_s * math.exp(rng.gauss(0, 0.01))
            rows.append(
                {"run_id": run.id, "series_id": one.id, "commit_id": commit.id, "status": "ok", "n": 1, "value_s": value,
                 "half_width_s": value * 0.01, "clock": "wall", "measured_at": NOW, "wall_s": [value], "cpu_s": [value],
                 "block_size": [1], "block_process": [0], "block_order": [0], "block_canary_wall_s": [1e-3],
                 "block_canary_cpu_s": [1e-3]}
            )  # fmt: skip
    for start in range(0, len(rows), 5_000):
        session.execute(insert(t.Measurement), rows[start : start + 5_000])
    session.commit()
    return repo
