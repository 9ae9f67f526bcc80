"""Findings of machine code on the pages of a commit, a series and a regression, and what was not timed for equal code."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.store import tables as t
from tests import builders_pages as builders
from tests.integration.dashboards.test_pages import words_of

FACTS = {"text_bytes": 812.0, "stack_bytes": 0.0}


@pytest.fixture
def surveyed(built, engine):
    """The leading kernel's code before and at the commit that slows it down."""
    before, at = (built.commits[builders.GEMM_STEP + offset] for offset in (-1, 0))
    with Session(engine) as session:
        gemm = session.scalars(select(t.Benchmark).filter_by(name="gemm_f32")).first()
        for commit, code, facts in (
            (before, "a", FACTS),
            (at, "b", FACTS | {"text_bytes": 1033.0, "stack_bytes": 64.0}),
        ):
            row = {"target": "cpu", "toolchain": "gcc 12", "code_hash": code, "recipe_hash": "r", "facts": facts}
            session.add(t.StaticCode(commit_id=commit.id, benchmark_id=gemm.id, **row))
        session.commit()
    return before, at


def test_a_commit_says_what_it_did_to_machine_code(client, surveyed):
    before, at = surveyed
    page = words_of(client.get(f"/commits/{at.sha}").text)
    assert "Machine code 1" in page
    assert "text_bytes 812 → 1033" in page
    assert "warning" in page
    assert "No machine code is known to differ" in words_of(client.get(f"/commits/{before.sha}").text)


def test_a_series_lists_the_finding_and_marks_it_on_the_chart(client, built, surveyed):
    text = client.get(f"/series/{built.series[0].id}").text
    assert "stack_bytes 0 → 64" in words_of(text)
    assert '"name":"other machine code"' in text.replace(" ", "", 2).replace('"name": ', '"name":')


def test_the_evidence_holds_the_static_diff_of_both_sides(client, built, surveyed):
    page = words_of(client.get(f"/regressions/{built.gemm.id}").text)
    assert "Static facts cpu" in page
    assert "stack_bytes 0 → 64" in page
    [found] = client.get(f"/regressions/{built.gemm.id}/evidence.json").json["static"]
    assert (found["finding"], found["code_changed"]) == ("warning", True)
    assert found["differences"]["text_bytes"] == [812.0, 1033.0]


def test_a_commit_that_was_not_timed_for_its_code_is_no_failure(client, built, engine):
    series = built.series[4]  # a quiet one
    other = built.commits[-2].sha
    failing = client.get("/").text.count("chip-failing")
    with Session(engine) as session:
        newest = (
            select(t.Measurement.id)
            .where(t.Measurement.series_id == series.id)
            .order_by(t.Measurement.commit_id.desc(), t.Measurement.id.desc())
            .limit(1)
        )
        session.execute(
            update(t.Measurement)
            .where(t.Measurement.id.in_(newest))
            .values(status=MeasurementStatus.IDENTICAL, identical_to=other, value_s=None, half_width_s=None)
        )
        session.commit()
    assert client.get("/").text.count("chip-failing") == failing
    text = client.get(f"/series/{series.id}").text
    assert f"same code as {other[:9]}" in words_of(text)
    assert "chip-failing" not in text.split("<h2>Figures")[1].split("</tr>")[1]


def test_a_run_says_why_machine_code_was_not_read(client, built, engine):
    with Session(engine) as session:
        run_id = session.scalars(select(t.Run.id).order_by(t.Run.id)).first()
        assert "Machine code" not in client.get(f"/runs/{run_id}").text
        session.execute(update(t.Run).where(t.Run.id == run_id).values(static_missing="install the extra static"))
        session.commit()
    assert "install the extra static" in client.get(f"/runs/{run_id}").text
