"""Reports that cannot be believed are refused, naming the value; series start and go on where they should."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from service.store.tables import Environment, Measurement, Run, Series, Workload

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
        ("status", "identical"),
        ("identical_to", "f" * 40),
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
