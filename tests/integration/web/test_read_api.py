"""Reading: lists page by key, filters hold, nonsense is refused, errors are problems."""

from __future__ import annotations

import pytest

ZERO = "0" * 40


@pytest.fixture
def measured(service, repository, git_repo, make_report):
    """Three measured commits."""
    token = service.runner()
    before, shas = ZERO, []
    for index in range(3):
        shas.append(git_repo.kernel(str(index)))
        service.push(repository, before, shas[-1], guid=str(index))
        assert service.report(token, make_report(service.claim(token))).status_code == 201
        before = shas[-1]
    return shas


def get(service, path: str):
    return service.http.get(f"/api/v1{path}")


def test_a_long_list_is_read_page_by_page_without_gaps(service, measured):
    seen, cursor = [], None
    while True:
        page = get(service, f"/runs?limit=2{'' if cursor is None else f'&after={cursor}'}").json
        seen += [item["sha"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == measured[::-1]


def test_points_come_in_commit_order(service, measured):
    [series] = get(service, "/series").json["items"]
    first = get(service, f"/series/{series['id']}/points?limit=2").json
    rest = get(service, f"/series/{series['id']}/points?after={first['next']}").json
    assert [point["sha"] for point in first["items"] + rest["items"]] == measured
    assert get(service, f"/series/{series['id']}").json["workload"] == "gemm_f32[k=64,m=64,n=64]"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("/runs?state=reported", 3),
        ("/runs?state=queued", 0),
        ("/runs?pool=cpu&repository=ada/kernels", 3),
        ("/series?family=gemm", 1),
        ("/series?family=moe", 0),
        ("/regressions", 0),
        ("/regressions?state=confirmed", 0),
        ("/repositories", 1),
        (f"/commits/{'a' * 40}/alerts", 0),
    ],
)
def test_filters_hold(service, measured, query, count):
    assert len(get(service, query).json["items"]) == count


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs?limit=0", 400),
        ("/runs?limit=1e3", 400),
        ("/runs?limit=-1", 400),
        ("/runs?limit=1001", 400),
        ("/runs?limit=²", 400),
        ("/runs?after=99999999999999999999999", 400),
        ("/runs?state=%00", 400),
        ("/runs/4711", 404),
        ("/runs/99999999999999999999999", 404),
        ("/series/4711", 404),
        ("/series/4711/points", 404),
        ("/regressions/4711", 404),
        ("/nothing", 404),
        ("/commits/%00/alerts", 404),
    ],
)
def test_nonsense_is_a_problem_with_a_sentence(service, path, status):
    answer = get(service, path)
    assert answer.status_code == status
    assert answer.content_type == "application/problem+json"
    assert set(answer.json) >= {"type", "title", "status", "detail"}


def test_a_wrong_method_names_the_right_ones(service):
    answer = service.http.put("/api/v1/runs")
    assert answer.status_code == 405
    assert "GET" in answer.headers["Allow"]


def test_health_and_readiness_tell_what_is_missing(service):
    assert service.http.get("/healthz").status_code == 200
    answer = service.http.get("/readyz")  # the settings of tests name a broker that is not there
    assert answer.status_code == 503
    assert answer.json["checks"] == {"database": "ok", "schema": "ok", "broker": "does not answer"}


def test_readiness_with_a_broker(service, broker_url):
    service.settings.redis_url = broker_url
    assert service.http.get("/readyz").json["status"] == "ready"


def test_an_old_schema_is_not_ready(service, engine):
    from service.store import schema

    schema.downgrade(engine, "0001")
    assert "kernelwatch migrate" in service.http.get("/readyz").json["checks"]["schema"]


def test_a_database_that_is_away_is_503_and_not_a_traceback(service, settings):
    from dataclasses import replace

    from service.store.engine import make_engine, make_sessions
    from service.web.app import create_app

    away = make_engine("postgresql://nobody@127.0.0.1:1/none")
    app = create_app(settings, replace(service.parts, engine=away, sessions=make_sessions(away)))
    answer = app.test_client().get("/api/v1/runs")
    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
    assert "Retry-After" in answer.headers
    assert app.test_client().get("/readyz").status_code == 503
