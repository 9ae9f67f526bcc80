"""The webhook's door: what is refused, what is taken, and what happens when things die in between."""

from __future__ import annotations

import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from sqlalchemy import func, select

from service import tasks
from service.store.tables import GitCommit, Repository, Run, WebhookDelivery

ZERO = "0" * 40
A_SHA = "a" * 40


def count(service, table) -> int:
    with service.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def signed(repository, body: bytes, **headers: str) -> dict[str, str]:
    digest = hmac.new(repository.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-GitHub-Event": "push", "X-GitHub-Delivery": "g", "X-Hub-Signature-256": f"sha256={digest}"} | headers


def push_body(**changes) -> bytes:
    payload = {"ref": "refs/heads/main", "before": ZERO, "after": A_SHA, "repository": {"full_name": "ada/kernels"}}
    return json.dumps(payload | changes).encode()


@pytest.mark.parametrize("signature", ["sha256=" + "0" * 64, "", "sha1=abc", "Ω"])
def test_a_wrong_signature_is_refused_and_stores_nothing(service, repository, signature):
    headers = signed(repository, push_body()) | {"X-Hub-Signature-256": signature}
    answer = service.http.post("/webhooks/github", data=push_body(), headers=headers)
    assert answer.status_code == 401
    assert answer.content_type == "application/problem+json"
    assert count(service, WebhookDelivery) == 0


def test_a_missing_signature_is_refused(service, repository):
    headers = signed(repository, push_body())
    del headers["X-Hub-Signature-256"]
    assert service.http.post("/webhooks/github", data=push_body(), headers=headers).status_code == 401


def test_the_signature_covers_the_raw_bytes(service, repository):
    body = push_body()
    headers = signed(repository, body)
    assert service.http.post("/webhooks/github", data=body + b" ", headers=headers).status_code == 401


def test_an_unknown_repository_is_not_found(service, repository):
    body = push_body(repository={"full_name": "ada/other"})
    assert service.http.post("/webhooks/github", data=body, headers=signed(repository, body)).status_code == 404


def test_a_percent_sign_in_a_name_matches_no_other_repository(service, repository):
    body = push_body(repository={"full_name": "ada/%"})
    assert service.http.post("/webhooks/github", data=body, headers=signed(repository, body)).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[]",
        b"null",
        b'{"repository": 3}',
        b"\xff\xfe\x00",
        b'{"repository": {"full_name": "ada/kernels"}}',
        push_body(after="not a sha"),
        push_body(after=None),
        push_body(ref="refs/heads/\x00main"),
        push_body(ref=["x"]),
        b'{"a":' * 2000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_garbage_is_a_bad_request_and_never_a_traceback(service, repository, body):
    answer = service.http.post("/webhooks/github", data=body, headers=signed(repository, body))
    assert answer.status_code == 400
    assert "Traceback" not in answer.text
    assert count(service, WebhookDelivery) == 0


@pytest.mark.parametrize("missing", ["X-GitHub-Event", "X-GitHub-Delivery"])
def test_a_delivery_without_its_headers_is_a_bad_request(service, repository, missing):
    headers = signed(repository, push_body())
    del headers[missing]
    assert service.http.post("/webhooks/github", data=push_body(), headers=headers).status_code == 400


def test_a_ping_is_answered(service, repository):
    body = json.dumps({"zen": "x", "repository": {"full_name": "ada/kernels"}}).encode()
    headers = signed(repository, body, **{"X-GitHub-Event": "ping"})
    assert service.http.post("/webhooks/github", data=body, headers=headers).status_code == 200


def test_an_oversized_body_is_refused_before_it_is_read(service, repository):
    answer = service.http.post("/webhooks/github", data=b"", headers={"Content-Length": "30000000"})
    assert answer.status_code in (400, 413)
    answer = service.http.post("/webhooks/github", data=b"x" * 25_000_001)
    assert answer.status_code == 413


def test_the_form_content_type_of_the_forge_works_as_well(service, repository, git_repo):
    tip = git_repo.kernel("one")
    body = urlencode({"payload": push_body(after=tip).decode()}).encode()
    answer = service.http.post(
        "/webhooks/github",
        data=body,
        headers=signed(repository, body),
        content_type="application/x-www-form-urlencoded",
    )
    assert answer.status_code == 202
    assert count(service, Run) == 1


def test_a_repeated_delivery_changes_nothing(service, repository, git_repo):
    tip = git_repo.kernel("one")
    assert service.push(repository, ZERO, tip, guid="same").status_code == 202
    again = service.push(repository, ZERO, tip, guid="same")
    assert again.status_code == 200
    assert count(service, WebhookDelivery) == 1
    assert len(service.bell.rung) == 1


@pytest.mark.parametrize("guids", [["same"] * 6, [f"g{index}" for index in range(6)]], ids=["one guid", "six guids"])
def test_equal_webhooks_at_once_make_one_run(service, repository, git_repo, guids):
    tip = git_repo.kernel("one")

    def deliver(guid: str) -> int:
        from dataclasses import replace

        return replace(service, http=service.app.test_client()).push(repository, ZERO, tip, guid=guid).status_code

    with ThreadPoolExecutor(6) as pool:
        codes = sorted(pool.map(deliver, guids))
    assert codes in ([200] * 5 + [202], [202] * 6)
    assert count(service, Run) == 1
    assert count(service, WebhookDelivery) == len(set(guids))


def test_a_push_whose_fetch_fails_is_kept_and_finished_later(service, repository, git_repo):
    tip = git_repo.kernel("one")
    away = git_repo.path.rename(git_repo.path.with_name("away"))
    assert service.push(repository, ZERO, tip, guid="g").status_code == 202
    [(task, arguments)] = service.bell.tasks
    assert task == "service.handle_delivery"
    assert count(service, Run) == 0

    tasks.handle_delivery(service.parts, **arguments)  # still away
    assert count(service, Run) == 0

    away.rename(git_repo.path)
    tasks.handle_delivery(service.parts, **arguments)
    tasks.handle_delivery(service.parts, **arguments)
    assert count(service, Run) == 1
    assert len(service.bell.rung) == 1


def test_a_delivery_whose_process_died_after_storing_it_is_found_by_the_beat(service, repository, git_repo):
    tip = git_repo.kernel("one")
    with service.sessions.begin() as session:
        session.add(
            WebhookDelivery(
                guid="g", repository_id=repository.id, event="push", ref="refs/heads/main",
                before_sha=ZERO, after_sha=tip, received_at=service.clock(),
            )
        )  # fmt: skip
    tasks.finish_deliveries(service.parts)
    assert service.bell.tasks == []  # its own process may still be at it
    service.clock.advance(60)
    tasks.finish_deliveries(service.parts)
    assert [name for name, _ in service.bell.tasks] == ["service.handle_delivery"]
    tasks.handle_delivery(service.parts, **service.bell.tasks[0][1])
    assert count(service, Run) == 1


def test_tags_and_deleted_branches_are_noted_without_runs(service, repository, git_repo):
    tip = git_repo.kernel("one")
    service.push(repository, ZERO, tip, guid="tag", ref="refs/tags/v1")
    service.push(repository, tip, ZERO, guid="gone", branch="old")
    with service.sessions() as session:
        notes = session.scalars(select(WebhookDelivery.note).order_by(WebhookDelivery.id)).all()
    assert notes == ["refs/tags/v1 is not a branch", "branch old was deleted"]
    assert count(service, Run) == 0


def test_commits_of_another_branch_are_recorded_but_not_measured(service, repository, git_repo):
    base = git_repo.kernel("one")
    service.push(repository, ZERO, base, guid="g1")
    git_repo.checkout("main", new="feature")
    side = git_repo.kernel("two")
    service.push(repository, ZERO, side, guid="g2", branch="feature")
    with service.sessions() as session:
        rows = dict(session.execute(select(GitCommit.sha, GitCommit.position)).all())
    assert rows == {base: 0, side: None}
    assert count(service, Run) == 1


def test_a_push_the_payload_misdescribes_measures_what_the_mirror_has(service, repository, git_repo):
    tip = git_repo.kernel("one")
    service.push(repository, ZERO, A_SHA, guid="g")
    with service.sessions() as session:
        delivery = session.scalars(select(WebhookDelivery)).one()
        run = session.scalars(select(Run)).one()
        assert session.get_one(GitCommit, run.commit_id).sha == tip
    assert A_SHA[:12] in delivery.note


def test_the_case_of_a_repository_name_does_not_matter(service, repository, git_repo):
    body = push_body(repository={"full_name": "Ada/Kernels"}, after=git_repo.kernel("one"))
    assert service.http.post("/webhooks/github", data=body, headers=signed(repository, body)).status_code == 202


def test_a_run_is_rung_for_only_after_it_is_committed(service, repository, git_repo, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(type(service.bell), "ring", lambda self, pool, run_id: seen.append(count(service, Run)))
    service.push(repository, ZERO, git_repo.kernel("one"), guid="g")
    assert seen == [1]


def test_repositories_with_equal_commits_do_not_meet(service, repository, git_repo):
    with service.sessions.begin() as session:
        twin = Repository(name="ada/fork", clone_url=repository.clone_url, webhook_secret="another-secret")
        session.add(twin)
    tip = git_repo.kernel("one")
    service.push(repository, ZERO, tip, guid="g1")
    service.push(twin, ZERO, tip, guid="g2")
    assert count(service, Run) == 2
