"""Handing in reports: once, whole, believed only when believable."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from service import tasks
from service.store.tables import Benchmark, Environment, GitCommit, Measurement, Run, Series, Workload

ZERO = "0" * 40
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def token(service) -> str:
    return service.runner()


@pytest.fixture
def push(service, repository, git_repo):
    """Pushes one more kernel commit and returns its sha."""
    numbers = iter(range(1000))

    def go() -> str:
        before = git_repo.head() if next(numbers) else ZERO
        sha = git_repo.kernel(f"version {next(numbers)}")
        assert service.push(repository, before, sha, guid=sha).status_code == 202
        return sha

    return go


@pytest.fixture
def order(service, push, token):
    """Pushes a commit and claims its run."""

    def go() -> dict:
        push()
        return service.claim(token)

    return go


def count(service, table) -> int:
    with service.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def run_of(service, order: dict) -> Run:
    with service.sessions() as session:
        return session.get_one(Run, order["run_id"])


# -- once -----------------------------------------------------------------------------------------------------------


def test_eight_copies_at_once_are_stored_once(service, order, token, make_report):
    given = order()
    report = make_report(given)

    def hand_in(_: int) -> int:
        return replace(service, http=service.app.test_client()).report(token, report).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(hand_in, range(8)))
    assert codes == [200] * 7 + [201]
    assert count(service, Measurement) == 1


def test_a_report_of_a_superseded_attempt_is_refused_and_the_new_one_taken(service, order, token, make_report):
    first = order()
    service.clock.advance(91)
    tasks.expire_leases(service.parts)
    second = service.claim(token)
    assert service.report(token, make_report(first)).status_code == 409
    assert count(service, Measurement) == 0
    assert service.report(token, make_report(second)).status_code == 201
    assert service.report(token, make_report(first)).status_code == 409


@pytest.mark.parametrize("beaten", ["before the beat", "after the beat"])
def test_a_late_report_is_taken_while_nobody_else_has_the_run(service, order, token, make_report, beaten):
    given = order()
    service.clock.advance(1000)
    if beaten == "after the beat":
        tasks.expire_leases(service.parts)
        assert run_of(service, given).state == "queued"
    assert service.report(token, make_report(given)).status_code == 201
    assert run_of(service, given).state == "reported"
    assert service.claim(token) is None


def test_a_report_of_a_run_that_has_failed_for_good_is_refused(service, order, token, make_report):
    given = order()
    for _ in range(3):
        service.clock.advance(91)
        tasks.expire_leases(service.parts)
        given = service.claim(token) or given
    assert run_of(service, given).state == "failed"
    assert service.report(token, make_report(given)).status_code == 409


@pytest.mark.parametrize("changes", [{"lease_token": "guessed"}, {"attempt": 2}, {"attempt": 0}])
def test_a_report_that_does_not_hold_the_lease_is_refused(service, order, token, make_report, changes):
    assert service.report(token, make_report(order(), **changes)).status_code == 409


def test_another_runner_cannot_report_a_run(service, order, make_report):
    assert service.report(service.runner("other"), make_report(order())).status_code == 409


def test_an_unknown_run_is_not_found(service, order, token, make_report):
    assert service.report(token, make_report(order(), run_id=4711)).status_code == 404


def test_what_follows_is_asked_for_only_after_the_report_is_committed(service, order, token, make_report, monkeypatch):
    seen = []
    given = order()
    monkeypatch.setattr(type(service.bell), "later", lambda *_, **__: seen.append(run_of(service, given).state))
    service.report(token, make_report(given))
    assert seen == ["reported"]


def test_a_report_whose_follow_up_was_lost_is_found_by_the_beat(service, order, token, make_report):
    given = order()
    service.report(token, make_report(given))
    service.bell.tasks.clear()  # the message is lost
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == []
    service.clock.advance(60)
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == [("service.after_report", {"run_id": given["run_id"]})]
    tasks.after_report(service.parts, run_id=given["run_id"])
    service.bell.tasks.clear()
    tasks.finish_reports(service.parts)
    assert service.bell.tasks == []


# -- whole ----------------------------------------------------------------------------------------------------------


def test_a_report_that_breaks_off_leaves_nothing_behind(service, order, token, make_report, monkeypatch):
    from service.usecases import ingest

    def die(*_):
        raise RuntimeError("the power went out")

    given = order()
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "copy_measurements", die)
        answer = service.report(token, make_report(given))
    assert answer.status_code == 500
    assert "power" not in answer.text
    assert [count(service, table) for table in (Benchmark, Workload, Series, Environment, Measurement)] == [0] * 5
    assert run_of(service, given).state == "leased"
    assert service.report(token, make_report(given)).status_code == 201


def test_partners_are_stored_at_their_own_commits(service, repository, push, token, make_report, make_measurement):
    from service.contract import RunReason
    from service.store import commits
    from service.usecases.dispatch import order_run

    good, bad = push(), push()
    with service.sessions.begin() as session:
        order_run(
            session, repository_id=repository.id, pool="cpu", reason=RunReason.CONFIRM, dedupe_key="c", priority=9,
            commit_id=commits.by_sha(session, repository_id=repository.id, sha=bad).id, partner_shas=(good,),
        )  # fmt: skip
    given = service.claim(token)
    assert given["partner_shas"] == [good]
    report = make_report(given, measurements=[make_measurement(bad), make_measurement(good)])
    assert service.report(token, report).status_code == 201
    with service.sessions() as session:
        shas = session.scalars(select(GitCommit.sha).join(Measurement, Measurement.commit_id == GitCommit.id)).all()
    assert sorted(shas) == sorted([good, bad])
    assert count(service, Series) == 1


def test_every_status_is_stored_and_only_ok_carries_a_figure(service, order, token, make_report, make_measurement):
    given = order()
    bad = {"value_s": None, "half_width_s": None, "blocks": []}
    statuses = ["wrong_result", "crashed", "timed_out", "too_noisy", "skipped"]
    measurements = [
        make_measurement(given["sha"], workload=f"w[{status}]", status=status, error=f"why {status}", **bad)
        for status in statuses
    ]
    assert service.report(token, make_report(given, measurements=measurements)).status_code == 201
    with service.sessions() as session:
        rows = session.execute(select(Measurement.status, Measurement.error, Measurement.value_s)).all()
    assert sorted(rows) == sorted((status, f"why {status}", None) for status in statuses)


def test_a_failure_is_written_with_its_reason_and_log(service, order, token, make_report):
    given = order()
    failure = {"stage": "build", "kind": "permanent", "reason": "cc: error", "log_tail": "line\x00 \ud7ff\n"}
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 201
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 200
    run = run_of(service, given)
    assert (run.state, run.failure_stage, run.failure_kind, run.failure_reason) == (
        "failed",
        "build",
        "permanent",
        "cc: error",
    )


def test_a_transient_failure_is_retried_and_the_last_one_is_final(service, order, token, make_report):
    given = order()
    failure = {"stage": "device", "kind": "transient", "reason": "device busy", "log_tail": ""}
    for attempt in (1, 2):
        assert given["attempt"] == attempt
        report = make_report(given, measurements=[], failure=failure)
        assert service.report(token, report).status_code == 201
        assert service.report(token, report).status_code == 409
        assert run_of(service, given).state == "queued"
        given = service.claim(token)
    assert service.report(token, make_report(given, measurements=[], failure=failure)).status_code == 201
    run = run_of(service, given)
    assert (run.state, run.device_s) == ("failed", 31.5)


def test_a_commit_that_cannot_be_built_fails_the_run_with_its_own_reason(service, order, token, make_report):
    given = order()
    failure = {"stage": "build", "kind": "permanent", "reason": "no such header", "log_tail": ""}
    report = make_report(given, measurements=[], commit_failures=[{"sha": given["sha"], "failure": failure}])
    assert service.report(token, report).status_code == 201
    run = run_of(service, given)
    assert (run.state, run.failure_reason) == ("failed", "no such header")
    assert run.commit_failures == [{"sha": given["sha"], "failure": failure}]


def test_text_that_could_break_the_copy_format_comes_back_as_it_was(
    service, order, token, make_report, make_measurement
):
    given = order()
    nasty = "tab\t newline\n return\r back\\slash \\N \"quote\" 'single' {brace,comma} ünï"
    measurement = make_measurement(
        given["sha"], status="crashed", value_s=None, half_width_s=None, error=nasty, flags=['a,"b\\', "NULL", " "],
        static={"ptx": nasty, "registers": 32, "spill": 0.5},
    )  # fmt: skip
    assert service.report(token, make_report(given, measurements=[measurement])).status_code == 201
    with service.sessions() as session:
        row = session.scalars(select(Measurement)).one()
    assert (row.error, row.flags) == (nasty, ['a,"b\\', "NULL", " "])
    assert row.static_facts == {"ptx": nasty, "registers": 32, "spill": 0.5}


# -- believable -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value_s", NAN),
        ("value_s", INF),
        ("value_s", -1.0),
        ("value_s", 0.0),
        ("value_s", 1e9),
        ("value_s", None),
        ("value_s", "CUDA OOM"),
        ("value_s", "0.01"),
        ("value_s", True),
        ("half_width_s", NAN),
        ("half_width_s", -0.1),
        ("flops", INF),
        ("bytes", -1.0),
        ("version", -1),
        ("version", 2**31),
        ("metric", ""),
        ("metric", "x" * 600),
        ("benchmark", "a\x00b"),
        ("workload", "a\nb"),
        ("unit", "ms"),
        ("direction", "sideways"),
        ("clock", "sundial"),
        ("status", "fine"),
        ("status", "crashed"),
        ("axes", {"m": NAN}),
        ("axes", {"": 1}),
        ("static", {"registers": INF}),
        ("blocks", []),
        ("flags", ["\x00"]),
        ("sha", "f" * 40),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_named(
    service, order, token, make_report, make_measurement, field, value
):
    given = order()
    measurement = make_measurement(given["sha"], **{field: value})
    answer = service.report(
        token, make_report(given, measurements=[make_measurement(given["sha"], workload="ok"), measurement])
    )
    assert answer.status_code == 422, answer.json
    assert any(
        field in fault["field"] or fault["field"].startswith("measurements[1]") for fault in answer.json["errors"]
    )
    assert "1" in answer.json["errors"][0]["field"]
    assert count(service, Measurement) == 0
    assert run_of(service, given).state == "leased"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("wall_s", [0.01, NAN, 0.01]),
        ("wall_s", [0.01, INF, 0.01]),
        ("wall_s", [0.01, 0.0, 0.01]),
        ("wall_s", [0.01, -0.01, 0.01]),
        ("wall_s", [0.01, 1e6, 0.01]),
        ("wall_s", [0.01]),
        ("cpu_s", [0.01, NAN, 0.01]),
        ("cpu_s", [0.01, -1.0, 0.01]),
        ("canary_wall_s", NAN),
        ("canary_cpu_s", -1.0),
        ("process", -1),
        ("order", 2**40),
    ],
)
def test_a_sample_that_cannot_be_is_refused_and_named(
    service, order, token, make_report, make_measurement, field, value
):
    given = order()
    measurement = make_measurement(given["sha"])
    measurement["blocks"][1][field] = value
    answer = service.report(token, make_report(given, measurements=[measurement]))
    assert answer.status_code == 422
    assert "blocks" in answer.json["detail"]


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": None},
        {"measurements": []},
        {"finished_at": 0.0},
        {"started_at": NAN},
        {"finished_at": 1e300},
        {"device_s": -1.0},
        {"device_s": NAN},
        {"harness_epoch": -1},
        {"contract_version": 99},
        {"canary_wall_s": INF},
        {"flags": ["x" * 600]},
        {"commit_failures": [{"sha": "f" * 40, "failure": {"stage": "build", "kind": "bug", "reason": "r"}}]},
    ],
    ids=str,
)
def test_a_report_that_cannot_be_is_refused(service, order, token, make_report, changes):
    answer = service.report(token, make_report(order(), **changes))
    assert answer.status_code == 422, answer.json
    assert next(iter(changes)) in answer.json["detail"]
    assert count(service, Measurement) == 0


def test_a_corrected_report_is_taken_after_a_refused_one(service, order, token, make_report, make_measurement):
    given = order()
    wrong = make_measurement(given["sha"], value_s=-1.0)
    assert service.report(token, make_report(given, measurements=[wrong])).status_code == 422
    assert service.report(token, make_report(given)).status_code == 201


def test_the_same_workload_twice_in_one_report_is_refused(service, order, token, make_report, make_measurement):
    given = order()
    answer = service.report(token, make_report(given, measurements=[make_measurement(given["sha"])] * 2))
    assert answer.status_code == 422
    assert "second measurement" in answer.json["detail"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b'{"run_id": 1}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_report_is_refused_without_a_traceback(service, order, token, body):
    given = order()
    answer = service.post(f"/api/v1/runs/{given['run_id']}/report", body, token=token)
    assert answer.status_code in (400, 422)
    assert answer.content_type == "application/problem+json"


def test_a_lone_surrogate_is_refused(service, order, token, make_report):
    body = json.dumps(make_report(order())).replace('"c0de"', '"\\ud800"').encode()
    run_id = json.loads(body)["run_id"]
    assert service.post(f"/api/v1/runs/{run_id}/report", body, token=token).status_code in (400, 422)


def test_an_oversized_report_is_refused(service, order, token):
    given = order()
    answer = service.post(f"/api/v1/runs/{given['run_id']}/report", b" " * 64_000_001, token=token)
    assert answer.status_code == 413


# -- series ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def series(service):
    """(id, predecessor) of all series in order."""

    def read() -> list[tuple[int, int | None]]:
        with service.sessions() as session:
            return [tuple(row) for row in session.execute(select(Series.id, Series.predecessor_id).order_by(Series.id))]

    return read


def test_the_same_fingerprint_continues_a_series_whatever_the_runner_is_called(
    service, order, token, make_report, series, push
):
    given = order()
    service.report(token, make_report(given))
    push()
    other = service.runner("renamed-host-17")
    again = service.claim(other)
    assert service.report(other, make_report(again)).status_code == 201
    assert len(series()) == 1
    assert count(service, Environment) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"harness_epoch": 2},
        {"environment": {"device": "H200", "comparable_key": "H200", "fingerprint": "f2", "facts": {}}},
    ],
    ids=["epoch", "environment"],
)
def test_a_new_epoch_or_environment_starts_a_series_linked_to_its_predecessor(
    service, order, token, make_report, series, change
):
    service.report(token, make_report(order()))
    assert service.report(token, make_report(order(), **change)).status_code == 201
    [(first, none), (second, predecessor)] = series()
    assert none is None
    assert (predecessor, second > first) == (first, True)


def test_another_fact_alone_stays_in_the_series(service, order, token, make_report, series):
    service.report(token, make_report(order()))
    facts = {"device": "cpu:test", "comparable_key": "cpu:test", "fingerprint": "f2", "facts": {"ptx": "900"}}
    service.report(token, make_report(order(), environment=facts))
    assert len(series()) == 1
    assert count(service, Environment) == 2


def test_alternating_machines_fill_two_series_and_never_mix(service, order, token, make_report, series):
    for letter in "ABABAB":
        where = {"device": letter, "comparable_key": letter, "fingerprint": letter, "facts": {}}
        service.report(token, make_report(order(), environment=where))
    assert len(series()) == 2
    with service.sessions() as session:
        counts = session.scalars(select(func.count()).select_from(Measurement).group_by(Measurement.series_id)).all()
    assert counts == [3, 3]


def test_a_new_benchmark_version_starts_a_linked_series(service, order, token, make_report, make_measurement, series):
    service.report(token, make_report(order()))
    given = order()
    service.report(token, make_report(given, measurements=[make_measurement(given["sha"], version=2)]))
    assert [predecessor is not None for _, predecessor in series()] == [False, True]


def test_metrics_of_another_unit_or_direction_never_share_a_series(
    service, order, token, make_report, make_measurement, series
):
    given = order()
    rate = {"metric": "rate", "unit": "TFLOP/s", "direction": "higher", "blocks": []}
    variants = [{}, rate, rate | {"unit": "GFLOP/s"}, rate | {"direction": "lower"}]
    measurements = [make_measurement(given["sha"], **variant) for variant in variants]
    assert service.report(token, make_report(given, measurements=measurements)).status_code == 201
    assert len(series()) == 4


def test_zero_is_a_figure_for_a_count_but_not_for_a_time(service, order, token, make_report, make_measurement):
    given = order()
    spills = make_measurement(given["sha"], metric="spills", unit="1", value_s=0.0, half_width_s=None, blocks=[])
    assert service.report(token, make_report(given, measurements=[spills])).status_code == 201


def test_a_corrected_count_of_flops_shows_at_once(service, order, token, make_report, make_measurement):
    service.report(token, make_report(order()))
    given = order()
    service.report(token, make_report(given, measurements=[make_measurement(given["sha"], flops=7.0)]))
    with service.sessions() as session:
        assert session.scalars(select(Workload.flops)).one() == 7.0


def test_reports_of_many_runs_at_once_share_their_series(service, push, make_report, make_measurement):
    tokens, orders = [], []
    for index in range(6):
        push()
        tokens.append(service.runner(f"runner-{index}"))
        orders.append(service.claim(tokens[-1]))

    def hand_in(index: int) -> int:
        given = orders[index]
        names = [f"w{number}" for number in range(20)]
        names = names[::-1] if index % 2 else names  # opposite orders: would deadlock if rows went in as they come
        measurements = [make_measurement(given["sha"], workload=name, benchmark=name) for name in names]
        own = replace(service, http=service.app.test_client())
        return own.report(tokens[index], make_report(given, measurements=measurements)).status_code

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(hand_in, range(6))) == [201] * 6
    assert (count(service, Series), count(service, Measurement)) == (20, 120)


@pytest.mark.slow
def test_twenty_thousand_results_in_one_report_are_stored(service, order, token, make_report, make_measurement):
    given = order()
    measurements = [make_measurement(given["sha"], workload=f"w[{index}]") for index in range(20_000)]
    assert service.report(token, make_report(given, measurements=measurements)).status_code == 201
    assert count(service, Measurement) == 20_000
