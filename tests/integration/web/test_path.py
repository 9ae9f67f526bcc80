"""The narrow path through the house: webhook, queued run, claim, report, rows."""

from __future__ import annotations

from sqlalchemy import select

from service.store.tables import GitCommit, Measurement, Run, Series, WebhookDelivery

ZERO = "0" * 40


def test_a_push_becomes_a_run_a_report_and_a_point_with_every_raw_sample(service, repository, git_repo, make_report):
    first = git_repo.kernel("one")
    git_repo.docs("words")
    tip = git_repo.kernel("two")

    answer = service.push(repository, ZERO, tip, guid="g1")
    assert answer.status_code == 202
    with service.sessions() as session:
        positions = dict(session.execute(select(GitCommit.sha, GitCommit.position)).all())
        run = session.scalars(select(Run)).one()
        assert session.scalars(select(WebhookDelivery)).one().handled_at is not None
    assert positions[first] == 0
    assert positions[tip] == 2
    assert service.bell.rung == [("cpu", run.id)]

    token = service.runner()
    order = service.claim(token, run.id)
    assert (order["sha"], order["suite_path"], order["attempt"]) == (tip, "kernels_under_test", 1)
    assert service.claim(token, run.id) is None

    beat = {"run_id": run.id, "lease_token": order["lease_token"], "stage": "measure", "done": 1, "total": 2}
    assert service.post(f"/api/v1/runs/{run.id}/heartbeat", beat, token=token).json == {"hold": True}

    report = make_report(order)
    assert service.report(token, report).status_code == 201
    assert service.report(token, report).status_code == 200
    assert service.bell.tasks == [("service.after_report", {"run_id": run.id})]

    with service.sessions() as session:
        stored = session.get_one(Run, run.id)
        measurement = session.scalars(select(Measurement)).one()
        series = session.scalars(select(Series)).one()
        assert (stored.state, stored.device_s, stored.harness_epoch) == ("reported", 10.5, 1)
        assert measurement.wall_s == [0.011, 0.010, 0.012] * 2
        assert measurement.cpu_s == [0.010, 0.010, 0.011] * 2
        assert (measurement.block_size, measurement.block_process) == ([3, 3], [0, 1])
        assert (measurement.value_s, measurement.median_s, measurement.n) == (0.0107, 0.011, 6)
        assert (series.metric, series.unit, series.pool) == ("time", "s", "cpu")

    points = service.http.get(f"/api/v1/series/{series.id}/points").json
    assert [(p["position"], p["sha"], p["value_s"]) for p in points["items"]] == [(2, tip, 0.0107)]
    assert service.http.get(f"/api/v1/runs/{run.id}").json["measurements"][0]["status"] == "ok"
