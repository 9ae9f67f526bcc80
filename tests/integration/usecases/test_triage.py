"""Decisions about regressions: allowed by the machine of states, in bulk, and written down."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import func, select

from service.domain.states import RegressionState
from service.store.tables import AuditEvent, GitCommit, Regression, Repository
from service.usecases.triage import Decision, assign, decide, merge

NOW = datetime(2030, 5, 1, tzinfo=UTC)


@pytest.fixture
def regressions(session):
    repository = Repository(name="acme/kernels", clone_url="file:///x", webhook_secret="s" * 32)
    session.add(repository)
    session.flush()
    commits = [
        GitCommit(
            repository_id=repository.id,
            sha=f"{index:040x}",
            parents=[],
            position=index,
            author="Ada",
            author_email="a@example.org",
            subject=f"c{index}",
            committed_at=NOW,
        )
        for index in range(502)
    ]
    session.add_all(commits)
    session.flush()
    rows = [
        Regression(
            repository_id=repository.id,
            direction="regression",
            state="confirmed",
            good_commit_id=commits[index].id,
            bad_commit_id=commits[index + 1].id,
            effect=0.1,
            effect_low=0.09,
            effect_high=0.11,
        )
        for index in range(500)
    ]
    session.add_all(rows)
    session.commit()
    return [row.id for row in rows]


def decision(state: RegressionState, **more) -> Decision:
    return Decision(state=state, actor="ada", **more)


def test_five_hundred_move_in_one_call_with_an_audit_line_each(session, regressions):
    result = decide(session, ids=regressions, decision=decision(RegressionState.ACKNOWLEDGED), now=NOW)
    session.commit()
    assert len(result.moved) == 500
    assert result.refused == {}
    assert session.scalar(select(func.count()).select_from(AuditEvent)) == 500
    line = session.scalars(select(AuditEvent).limit(1)).one()
    assert (line.before["state"], line.after["state"], line.actor) == ("confirmed", "acknowledged", "ada")


def test_what_may_not_move_says_why_and_the_rest_moves(session, regressions):
    first, second = regressions[:2]
    decide(session, ids=[first], decision=decision(RegressionState.NOT_REAL, note="hot board"), now=NOW)
    result = decide(session, ids=[first, second, 10**9], decision=decision(RegressionState.ACKNOWLEDGED), now=NOW)
    assert result.moved == (second,)
    assert "not_real cannot become acknowledged" in result.refused[first]
    assert "no such regression" in result.refused[10**9]


def test_expected_needs_an_owner_a_reason_and_an_expiry(session, regressions):
    with pytest.raises(ValueError, match="owner, a reason and a date of expiry"):
        decide(session, ids=regressions[:1], decision=decision(RegressionState.EXPECTED, note="known"), now=NOW)


def test_not_real_needs_a_reason(session, regressions):
    with pytest.raises(ValueError, match="needs a reason"):
        decide(session, ids=regressions[:1], decision=decision(RegressionState.NOT_REAL), now=NOW)


def test_an_assignment_is_written_down(session, regressions):
    assign(session, regression_id=regressions[0], assignee="bo", actor="ada")
    session.commit()
    line = session.scalars(select(AuditEvent)).one()
    assert (line.before["assignee"], line.after["assignee"]) == (None, "bo")


def test_merging_moves_what_was_found_and_closes_the_source(session, regressions):
    source, target = regressions[:2]
    merge(session, ids=[source], into=target, actor="ada", now=NOW)
    session.commit()
    closed = session.get_one(Regression, source)
    assert (closed.state, closed.note) == ("not_real", f"merged into regression {target}")


def test_what_does_not_belong_together_is_not_merged(session, regressions):
    session.get_one(Regression, regressions[0]).direction = "improvement"
    session.flush()
    with pytest.raises(ValueError, match="another repository or direction"):
        merge(session, ids=[regressions[0]], into=regressions[1], actor="ada", now=NOW)
