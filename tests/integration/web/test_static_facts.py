"""Facts of machine code: stored once and exactly, compared with the commit before, read back, and never an alarm."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.store import static_code
from service.store.tables import Regression, Run, StaticCode

ZERO = "0" * 40
ABOUT = {"benchmark": "gemm_mma", "family": "gemm", "version": 1, "problem": "gemm", "device": "cuda", "control": False}
FACTS = {"registers": 96.0, "stack_bytes": 0.0, "spill_store_bytes": 0.0, "sass.tensor": 64.0}


def static(sha, *, target="sm_90a", code="c0de", toolchain="nvrtc 13", error=None, **facts):
    return {
        "sha": sha,
        **ABOUT,
        "target": target,
        "toolchain": toolchain,
        "code_hash": None if error else code,
        "recipe_hash": "r",
        "facts": {} if error else FACTS | facts,
        "error": error,
    }


@pytest.fixture
def line(service, repository, git_repo, make_report):
    """Pushes a commit and reports its run with the facts that `make(sha)` gives."""
    token, last, numbers = service.runner(), [ZERO], iter(range(100))

    def push(make=lambda sha: [], **more):
        number = next(numbers)
        sha = git_repo.kernel(str(number))
        service.push(repository, last[0], sha, guid=str(number))
        last[0] = sha
        order = service.claim(token)
        answer = service.report(token, make_report(order, static=make(sha), **more))
        return sha, answer

    return push


def findings(service, sha):
    items = service.http.get(f"/api/v1/commits/{sha}/static").json["items"]
    return {(item["target"], item["finding"], item["before"]["sha"]): item for item in items}


def test_a_change_is_a_finding_against_the_nearest_commit_before_it_and_nobody_is_told(service, line):
    base, answer = line(lambda sha: [static(sha), static(sha, target="sm_80")])
    assert answer.status_code == 201
    same, _ = line(lambda sha: [static(sha), static(sha, target="sm_80")])
    unread, _ = line()
    head, _ = line(
        lambda sha: [static(sha, code="c1de", registers=64.0, stack_bytes=272.0), static(sha, target="sm_80", code="x")]
    )
    assert findings(service, base) == findings(service, same) == findings(service, unread) == {}
    found = findings(service, head)
    assert set(found) == {("sm_90a", "warning", same), ("sm_80", "look_here", same)}
    warning = found["sm_90a", "warning", same]
    assert warning["differences"] == {"registers": [96.0, 64.0], "stack_bytes": [0.0, 272.0]}
    assert warning["code_changed"] is True
    assert "registers 96 → 64" in warning["words"]
    with service.sessions() as session:
        assert session.scalars(select(Regression)).all() == []


def test_another_compiler_starts_anew_and_a_target_that_is_lost_is_a_finding(service, line):
    base, _ = line(lambda sha: [static(sha), static(sha, target="sm_80", error="needs sm_90")])
    newer, _ = line(lambda sha: [static(sha, toolchain="nvrtc 14", code="x")])
    head, _ = line(lambda sha: [static(sha, error="error: x"), static(sha, target="sm_80", error="needs sm_90a")])
    assert findings(service, newer) == {}
    ((target, finding, before),) = findings(service, head)
    assert (target, finding, before) == ("sm_90a", "look_here", base)


def test_facts_are_kept_as_they_came_first(service, line):
    line(lambda sha: [static(sha)])
    with service.sessions.begin() as session:
        kept = session.scalars(select(StaticCode)).one()
        columns = ("commit_id", "benchmark_id", "run_id", "target", "toolchain", "recipe_hash", "error")
        again = {name: getattr(kept, name) for name in columns} | {"code_hash": "other", "facts": {}}
        static_code.write(session, [again])
    with service.sessions() as session:
        kept = session.scalars(select(StaticCode)).one()
        run = session.scalars(select(Run)).one()
        assert (kept.run_id, kept.facts, kept.code_hash, kept.target) == (run.id, FACTS, "c0de", "sm_90a")
        assert run.static_missing is None


def test_why_code_was_not_read_is_told(service, line):
    missing = "NVRTC is not installed (pip install 'kernelwatch[static]')"
    sha, answer = line(static_missing=missing)
    assert answer.status_code == 201
    assert service.http.get(f"/api/v1/commits/{sha}/static").json == {
        "items": [],
        "why_missing": missing,
        "next": None,
    }
    assert service.http.get(f"/api/v1/commits/{'a' * 40}/static").status_code == 404


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"sha": "f" * 40}, "sha"),
        ({"target": ""}, "target"),
        ({"facts": {"registers": float("nan")}}, "facts"),
        ({"code_hash": None}, "error"),
        ({"benchmark": "a\x00"}, "benchmark"),
    ],
)
def test_facts_that_cannot_be_are_refused_and_named(service, line, wrong, field):
    _, answer = line(lambda sha: [static(sha) | wrong])
    assert answer.status_code == 422
    assert field in str(answer.json)
    with service.sessions() as session:
        assert session.scalars(select(StaticCode)).all() == []
