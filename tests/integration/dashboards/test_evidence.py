"""The evidence of a regression, on its page and as JSON."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from service.store import tables as t
from tests import builders_pages as builders
from tests.integration.dashboards.test_pages import words_of


@pytest.fixture
def page(client, built):
    return words_of(client.get(f"/regressions/{built.gemm.id}").text)


@pytest.mark.parametrize(
    "words",
    [
        "gemm_f32 16.3 % slower",
        "certain · 4 series",
        "Use a 4-row register tile for ragged edges by Ada Krüger",
        "Named by bisection with probability 99.1 %, 84 s of device time",
        "kernelwatch compare",
        "the machine stood still",
        "identical: cpu:AMD EPYC 9454",
        "instructions 812 → 1033",
        "gemm_openblas[m=512,n=512,k=512]",
        "3 batches",
        "attributed to #perf",
        "opened to kernels@example.org",
        "evidence.json",
    ],
)
def test_the_page_tells(page, words):
    assert words in page


def test_a_search_that_goes_on_is_called_partial(client, built):
    page = words_of(client.get(f"/regressions/{built.moe.id}").text)
    assert "Not attributed yet" in page
    assert "what follows is partial" in page
    assert "No commit of the range: 1.0 %" in page
    assert "404 no_service" in page


def test_identical_machine_code_acquits_the_commit(client, engine, built):
    with Session(engine) as session:
        session.execute(update(t.Measurement).values(code_hash="same"))
        session.commit()
    page = words_of(client.get(f"/regressions/{built.gemm.id}").text)
    assert "identical on both sides: the commit cannot be the cause" in page


def test_a_machine_that_changed_is_said_loudly(client, engine, built):
    with Session(engine) as session:
        good = built.commits[builders.GEMM_STEP - 1].id
        session.execute(
            update(t.Measurement)
            .where(t.Measurement.commit_id == good)
            .values(block_canary_wall_s=[1.0e-3], block_canary_cpu_s=[1.0e-3])
        )
        session.commit()
    assert "the machine changed too" in words_of(client.get(f"/regressions/{built.gemm.id}").text)


def test_a_different_environment_shows_what_differs(client, engine, built):
    with Session(engine) as session:
        facts = {"compiler": "gcc 13.1.0", "cpu": "AMD EPYC 9454", "kernel": "6.1.0-28", "governor": "performance"}
        other = t.Environment(fingerprint="other", comparable_key="epyc", device="cpu:AMD EPYC 9454", facts=facts)
        session.add(other)
        session.flush()
        bad = built.commits[37].id
        session.execute(update(t.Run).where(t.Run.commit_id == bad).values(environment_id=other.id))
        session.commit()
    page = words_of(client.get(f"/regressions/{built.moe.id}").text)
    assert "differs: compiler gcc 12.2.0 → gcc 13.1.0" in page


def test_samples_of_both_sides_come_from_the_runs_that_measured_both(client, built):
    bundle = client.get(f"/regressions/{built.gemm.id}/evidence.json").json
    runs_before = {side["run_id"] for side in bundle["before"]}
    assert runs_before
    assert runs_before == {side["run_id"] for side in bundle["after"]}


def test_the_bundle_has_every_raw_sample_and_the_cost(client, built, engine):
    bundle = client.get(f"/regressions/{built.gemm.id}/evidence.json").json
    with Session(engine) as session:
        stored = session.scalars(
            select(t.Measurement.wall_s).where(t.Measurement.id == bundle["after"][0]["measurement_id"])
        ).one()
    assert bundle["after"][0]["wall_s"] == stored
    assert bundle["cost_device_s"]["searching"] == pytest.approx(84.2)
    assert [probe["phase"] for probe in bundle["bisections"][0]["probes"]] == ["ends", "search", "sandwich"]
    assert bundle["regression"]["culprit_sha"] == built.commits[27].sha
    assert len(bundle["series"]) == 4


def test_a_regression_that_lost_its_change_points_still_has_a_page(client, engine, built):
    with Session(engine) as session:
        session.execute(delete(t.ChangePoint))
        session.execute(delete(t.BisectionProbe))
        session.execute(delete(t.Bisection))
        session.execute(update(t.Regression).values(culprit_commit_id=None))
        session.commit()
    answer = client.get(f"/regressions/{built.gemm.id}")
    assert answer.status_code == 200
    assert "they were withdrawn" in answer.text
    assert client.get(f"/regressions/{built.gemm.id}/evidence.json").json["before"] == []


def test_a_range_off_the_main_line_still_has_a_page(client, engine, built):
    with Session(engine) as session:
        session.execute(update(t.GitCommit).values(position=None))
        session.commit()
    for path in ("/", f"/regressions/{built.gemm.id}", f"/series/{built.series[0].id}", "/regressions"):
        assert client.get(path).status_code == 200
