"""The fleet's API: how runners stand, what their jobs showed, and decisions by hand."""

from __future__ import annotations

ADMIN = "test-admin-token-4f0c1d7e2a"


def test_a_runner_is_quarantined_and_released_by_hand(service, repository):
    token = service.runner()
    (row,) = service.http.get("/api/v1/runners").json["items"]
    assert (row["standing"], row["aa"]) == ("trusted", None)
    path = f"/api/v1/runners/{row['runner_id']}/standing"
    wanted = {"standing": "quarantined", "reason": "the fan is broken"}
    assert service.post(path, wanted).status_code == 401
    assert service.post(path, wanted, token=ADMIN).status_code == 200
    assert service.post(path, wanted, token=ADMIN).status_code == 409
    (row,) = service.http.get("/api/v1/runners").json["items"]
    assert (row["standing"], row["standing_reason"]) == ("quarantined", "the fan is broken")
    assert row["standing_by"]
    assert service.post(path, {"standing": "trusted", "reason": "new fan"}, token=ADMIN).status_code == 200
    assert service.claim(token) is None
    assert service.post("/api/v1/runners/999/standing", wanted, token=ADMIN).status_code == 404


def test_the_canary_history_of_a_runner_can_be_read(service, repository):
    service.runner()
    (row,) = service.http.get("/api/v1/runners").json["items"]
    answer = service.http.get(f"/api/v1/runners/{row['runner_id']}/jobs")
    assert answer.json == {"items": [], "next": None}
    assert service.http.get("/api/v1/runners/999/jobs").status_code == 404
