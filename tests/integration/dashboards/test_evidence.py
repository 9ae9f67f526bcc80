"""The evidence of a regression, on its page and as JSON."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import Double, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import array
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
        "Named by bisection with probability 99.1 %, 84 s of device time in all",
        "84 s of device time: 28 s to confirm, 56 s to search",
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
        every_block = func.array_fill(literal(1.0e-3, Double), array([func.cardinality(t.Measurement.block_size)]))
        session.execute(
            update(t.Measurement)
            .where(t.Measurement.commit_id == good)
            .values(block_canary_wall_s=every_block, block_canary_cpu_s=every_block)
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


def test_the_headline_has_levels_and_effect_of_one_named_measurement(page):
    found = re.search(r"\+16\.3 % ± 0\.8 % ([\d.]+) ms → ([\d.]+) ms interleaved re-run #\d+ , 8 pairs", page)
    assert found
    assert float(found[2]) / float(found[1]) - 1 == pytest.approx(0.163, abs=0.002)


def test_the_vendor_control_of_the_same_shape_comes_first_with_its_interval(page):
    control = page[page.index("Vendor control") : page.index("Environment")]
    same = re.search(r"gemm_openblas\[m=512,n=512,k=512\] . ?[\d.]+ % ± [\d.]+ % in the same run, 8 pairs", control)
    assert same
    assert control.index("m=512,n=512") < control.index("1 other shape") < control.index("m=1024,n=1024")


def test_after_attribution_the_searched_range_stays_with_belief_and_what_was_measured(client, built):
    page = words_of(client.get(f"/regressions/{built.gemm.id}").text)
    rows = page[page.index("Searched range") :]
    assert "Searched range 4 candidates" in rows
    for position in range(25, 30):
        assert built.commits[position].sha[:9] in rows
    culprit = rows[rows.index(built.commits[27].sha[:9]) : rows.index(built.commits[28].sha[:9])]
    assert "99.1 %" in culprit
    found = re.findall(r"\+([\d.]+) % ± [\d.]+ % against (the good end|its parent)", culprit)
    sizes = {where: float(size) for size, where in found}
    assert sizes.keys() == {"the good end", "its parent"}
    assert all(14 < size < 18 for size in sizes.values())
    parent = rows[rows.index(built.commits[26].sha[:9]) : rows.index(built.commits[27].sha[:9])]
    assert "0.4 %" in parent
    assert "against" not in parent


def test_no_run_counts_twice_in_the_cost(client, built, engine):
    """The confirming run is the first batch of a search, and a search that is repeated takes all batches of the first."""

    def cost():
        return client.get(f"/regressions/{built.gemm.id}/evidence.json").json["cost_device_s"]

    once = {"confirming": pytest.approx(28.1), "searching": pytest.approx(56.2), "total": pytest.approx(84.3)}
    assert cost() == once
    with Session(engine) as session:
        first = session.scalars(select(t.Bisection).where(t.Bisection.regression_id == built.gemm.id)).one()
        again = t.Bisection(regression_id=built.gemm.id, generation=2, state="running", pool="cpu", problem={},
                            series_id=first.series_id, commit_shas=first.commit_shas, budget_s=900, spent_s=84.3)  # fmt: skip
        session.add(again)
        session.flush()
        for probe in session.scalars(select(t.BisectionProbe).where(t.BisectionProbe.bisection_id == first.id)).all():
            session.add(t.BisectionProbe(bisection_id=again.id, seq=probe.seq, run_id=probe.run_id, phase="earlier",
                                         position=probe.position, partners=probe.partners, measure_order=[]))  # fmt: skip
        session.commit()
    assert cost() == once


def test_every_attempt_to_confirm_counts_before_a_search_has_begun(client, built, engine):
    with Session(engine) as session:
        session.execute(delete(t.BisectionProbe))
        session.execute(delete(t.Bisection))
        for attempt, spent_s in ((1, 11.0), (2, 12.5)):
            session.add(
                builders.run_row(
                    built, built.commits[37], reason="confirm", device_s=spent_s, priority=attempt,
                    partner_shas=[built.commits[32].sha],
                )
            )  # fmt: skip
        session.commit()
    spent = client.get(f"/regressions/{built.moe.id}/evidence.json").json["cost_device_s"]
    assert spent == {"confirming": pytest.approx(23.5), "searching": 0, "total": pytest.approx(23.5)}


def test_an_improvement_is_not_called_critical(client, built, engine):
    with Session(engine) as session:
        session.get_one(t.Regression, built.attention.id).severity = "critical"
        session.commit()
    for path in ("/regressions", f"/regressions/{built.attention.id}"):
        assert "very large gain" in words_of(client.get(path).text)
