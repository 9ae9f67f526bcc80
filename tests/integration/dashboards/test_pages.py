"""The pages over a real database: what they show, that they hold with nothing, with much and with odd data."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import InternalError
from sqlalchemy.orm import Session

from service.store import tables as t
from service.store.pages import Pages, overview
from service.store.pages.overview import SeriesState
from tests import builders_pages as builders
from tests.builders_suite import HOSTILE_SUBJECT

LISTS = ("/", "/regressions", "/regressions?show=all&days=365", "/runs", "/runners", "/messages", "/health")


def words_of(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def links_of(html: str) -> set[str]:
    return {unescape(link) for link in re.findall(r'href="(/[^"#]*)"', html)}


def test_every_page_that_can_be_reached_by_links_answers(client, built):
    waiting, seen = {"/"}, set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        assert len(seen) < 500, "links lead to ever new pages"
        answer = client.get(path)
        assert answer.status_code in (200, 302), path
        if answer.mimetype == "text/html":
            waiting |= {link for link in links_of(answer.text) if not link.startswith("/sign-in?")} - seen
        answer.close()
    kinds = {re.sub(r"\?.*|/[0-9a-f]{40}|/\d+", "", path) for path in seen}
    assert {"/", "/series", "/regressions", "/runs", "/runners", "/messages", "/health", "/commits"} <= kinds


@pytest.mark.parametrize("path", LISTS)
def test_an_empty_database_says_what_to_do_next(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert re.search(r"kernelwatch |webhook|Nothing is open|Nothing here|Register one|Show everything", answer.text)


def test_a_registered_repository_without_runs_says_what_is_missing(client, engine):
    with Session(engine) as session:
        builders.repository(session)
        session.commit()
    page = words_of(client.get("/").text)
    assert "Nothing measured yet" in page
    assert "tensor-works/kernels is registered" in page


@pytest.mark.parametrize("path", ["/series/999", "/runs/999", "/regressions/999", "/regressions/999/evidence.json",
                                  "/commits/abcdef", "/commits/not-hex", "/commits/ab", "/runs/99999999999999999999"])  # fmt: skip
def test_what_does_not_exist_is_a_404_with_a_sentence(client, built, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "query", ["page=-3", "page=x", "state=nonsense", "q=%25", "q=%00", "q=" + "a+" * 200, "repo=nobody"]
)
def test_odd_queries_are_answered(client, built, query):
    assert client.get(f"/?{query}").status_code == 200


@pytest.mark.parametrize("path", ["/runs?before=x", "/runs?state=bogus", "/messages?before=-1", "/regressions?days=-4"])
def test_odd_list_queries_are_answered(client, built, path):
    assert client.get(path).status_code == 200


def test_a_subject_with_markup_stays_text_on_every_page(client, built):
    commit = built.commits[builders.WRONG_RESULT]
    assert commit.subject == HOSTILE_SUBJECT
    for path in ("/runs", f"/commits/{commit.sha}", f"/series/{built.series[0].id}", f"/series/{built.series[9].id}"):
        html = client.get(path).text
        assert "Größe" in html
        assert "<script>alert" not in html
        assert "</script><script>" not in html.replace("\n", "")


def test_the_overview_knows_the_state_of_every_series(client, built, engine):
    with Pages(engine).snapshot() as session:
        rows = {row.series_id: row for row in overview.series_rows(session)}
        counts = overview.state_counts(session)
    states = [rows[series.id].state for series in built.series]
    assert states == ["regressed"] * 4 + ["quiet"] * 2 + ["improved"] * 2 + ["failing"] + ["regressed"] * 2 + [
        "unguarded"
    ]
    assert counts == {
        SeriesState.REGRESSED: 6, SeriesState.FAILING: 1, SeriesState.SUSPECTED: 0, SeriesState.UNGUARDED: 1,
        SeriesState.IMPROVED: 2, SeriesState.QUIET: 2,
    }  # fmt: skip


def test_each_sparkline_is_of_its_own_series_and_in_first_parent_order(engine, built):
    with Pages(engine).snapshot() as session:
        rows = {row.series_id: row for row in overview.series_rows(session)}
    for series, shape in zip(built.series, built.shapes, strict=True):
        row = rows[series.id]
        assert row.values[0] == pytest.approx(builders.level(shape, 0), rel=6 * shape.noise)
        positions = [next(c.position for c in built.commits if c.id == commit_id) for commit_id in row.commit_ids]
        assert positions == sorted(positions)
        assert len(row.values) == len(row.statuses) == len(row.commit_ids) <= overview.SPARK_POINTS


def test_the_overview_lists_what_nothing_guards_with_the_reason(client, built):
    page = words_of(client.get("/").text)
    assert "the child was killed by signal 11 in block 2" in page
    assert "its noise of 6.0 % hides a step of 5 %" in page


def test_open_regressions_stand_first_and_worst_first(client, built):
    page = client.get("/").text
    order = re.findall(r'class="strong" href="/regressions/(\d+)"', page)
    assert order == [str(built.moe.id), str(built.gemm.id), str(built.attention.id)]


def test_a_closed_regression_leaves_the_overview_and_stays_in_the_list(client, built, engine):
    with Session(engine) as session:
        session.get_one(t.Regression, built.gemm.id).state = "fixed"
        session.commit()
    assert f'class="strong" href="/regressions/{built.gemm.id}"' not in client.get("/").text
    assert f"/regressions/{built.gemm.id}" in client.get("/regressions?show=closed").text
    assert f"/regressions/{built.gemm.id}" not in client.get("/regressions").text


def test_the_filter_needs_every_word_and_takes_wildcards_literally(engine, built):
    def found(query: str) -> int:
        with Pages(engine).snapshot() as session:
            return len(overview.series_rows(session, query=query))

    assert found("gemm") == 6
    assert found("GEMM m=64") == 1
    assert found("gemm attention") == 0
    assert found("%") == 0
    assert found("gemm_f32") == 4
    assert found("") == 12


def test_a_replaced_series_leaves_the_overview_and_links_to_its_successor(client, engine, built):
    old = built.series[0]
    with Session(engine) as session:
        newer = t.Series(repository_id=old.repository_id, workload_id=old.workload_id, metric="time", direction="lower",
                         pool="cpu", comparable_key="another", harness_epoch=1, predecessor_id=old.id,
                         history_at=datetime(2030, 1, 1, tzinfo=UTC))  # fmt: skip
        session.add(newer)
        session.commit()
        newer_id = newer.id
    page = client.get("/").text
    assert f'href="/series/{old.id}"' not in page
    assert f'href="/series/{newer_id}"' in page
    assert f'href="/series/{newer_id}"' in client.get(f"/series/{old.id}").text
    assert f'href="/series/{old.id}"' in client.get(f"/series/{newer_id}").text


def test_the_overview_pages_through_many_series_with_a_fixed_number_of_queries(client, engine, statements):
    with Session(engine) as session:
        builders.many_series(session, count=overview.PAGE_SIZE + 10, points=3)
    statements.clear()
    first = client.get("/?q=gemm")
    many = len(statements)
    second = client.get("/?q=gemm&page=1")
    assert first.text.count("data-words") == overview.PAGE_SIZE
    assert second.text.count("data-words") == 10
    statements.clear()
    assert client.get("/?q=gemm_v00").text.count("data-words") == 7
    assert len(statements) == many


@pytest.mark.parametrize("path", [*LISTS, "/series/1", "/runs/1"])
def test_no_page_reads_raw_samples_unless_it_draws_them(client, built, statements, path):
    statements.clear()
    client.get(path)
    assert statements
    assert not [statement for statement in statements if "wall_s" in statement.replace("canary_wall_s", "")]


def test_the_regression_page_reads_both_sides_the_search_and_the_controls_in_one_go_each(client, built, statements):
    statements.clear()
    client.get(f"/regressions/{built.gemm.id}")
    assert len([statement for statement in statements if "wall_s" in statement.replace("canary_wall_s", "")]) == 4


def test_a_page_sees_one_moment_and_cannot_write(engine, built):
    with Pages(engine).snapshot() as session:
        before = overview.state_counts(session)
        with Session(engine) as other:
            other.execute(text("DELETE FROM change_point"))
            other.commit()
        assert overview.state_counts(session) == before
        with pytest.raises(InternalError, match="read-only"):
            session.execute(text("DELETE FROM regression"))


def test_a_commit_measured_three_times_is_one_point(client, built):
    html = client.get(f"/series/{built.series[0].id}").text
    figure = re.search(r'id="history">(.*?)</script>', html, re.DOTALL).group(1)
    x = re.search(r'"customdata".*?"x":\[([^\]]*)\]', figure)
    positions = x.group(1).split(",")
    assert positions.count(str(builders.GEMM_STEP)) == 1
    assert "3 runs" in figure


def test_a_commit_that_does_not_build_is_marked_in_every_chart_of_its_pool(client, built):
    html = client.get(f"/series/{built.series[6].id}").text
    assert "build failed: gcc ended with status 1" in html


def test_a_measurement_off_the_main_line_is_listed_but_not_drawn(client, engine, built):
    with Session(engine) as session:
        side = t.GitCommit(repository_id=built.repository.id, sha="f" * 40, parents=[], author="x", author_email="x",
                           subject="On a branch", committed_at=builders.NOW)  # fmt: skip
        session.add(side)
        session.flush()
        run = builders.run_row(built, side, environment_id=None, runner_id=None)
        session.add(run)
        session.flush()
        row = t.Measurement(run_id=run.id, series_id=built.series[0].id, commit_id=side.id, status="ok", n=1, value_s=1e-3,
                            clock="wall", measured_at=builders.NOW, wall_s=[1e-3], cpu_s=[1e-3], block_size=[1],
                            block_process=[0], block_order=[0], block_canary_wall_s=[], block_canary_cpu_s=[])  # fmt: skip
        session.add(row)
        session.commit()
    html = client.get(f"/series/{built.series[0].id}").text
    assert "off the main line" in html
    assert "fffffffff" not in re.search(r'id="history">(.*?)</script>', html, re.DOTALL).group(1)
    assert client.get(f"/commits/{'f' * 40}").status_code == 200


def test_a_commit_is_found_by_the_beginning_of_its_id(client, built):
    sha = built.commits[27].sha
    assert client.get(f"/commits/{sha[:8]}").headers["Location"] == f"/commits/{sha}"
    page = words_of(client.get(f"/commits/{sha}").text)
    assert "Use a 4-row register tile for ragged edges" in page
    assert "Alerts 1" in page


def test_the_alerts_of_a_commit_are_json(client, built):
    alerts = client.get(f"/commits/{built.commits[27].sha}/alerts").json["alerts"]
    assert [alert["regression"] for alert in alerts] == [built.gemm.id]
    assert alerts[0]["culprit"] == built.commits[27].sha
    assert client.get(f"/commits/{built.commits[3].sha}/alerts").json["alerts"] == []


def test_a_failed_run_shows_its_reason_and_log(client, built, engine):
    with Session(engine) as session:
        run_id = session.scalars(select(t.Run.id).where(t.Run.state == "failed")).one()
    page = words_of(client.get(f"/runs/{run_id}").text)
    assert "gcc ended with status 1" in page
    assert "for (int j = 0; j < NR; ++j)" in page


def test_a_run_lists_the_commits_that_could_not_be_measured(client, built, engine):
    with Session(engine) as session:
        run = session.scalars(select(t.Run).where(t.Run.state == "reported")).first()
        failure = {"stage": "build", "kind": "permanent", "reason": "no rule", "log_tail": "make: <error>"}
        run.commit_failures = [{"sha": "c" * 40, "failure": failure}]
        session.commit()
        run_id = run.id
    page = words_of(client.get(f"/runs/{run_id}").text)
    assert "could not be measured" in page
    assert "build: no rule" in page


def test_a_silent_runner_and_an_unserved_pool_are_said(client, engine, built):
    with Session(engine) as session:
        session.add(builders.run_row(built, built.commits[39], pool="h200", state="queued", priority=9, runner_id=None))
        session.commit()
    assert "silent" in words_of(client.get("/runners").text)
    assert "Queue of pool h200 1 run No runner of this pool has given a sign of life" in words_of(
        client.get("/health").text
    )


def test_no_page_loads_anything_from_another_host(client, built):
    for path in (*LISTS, f"/regressions/{built.gemm.id}", f"/series/{built.series[0].id}"):
        answer = client.get(path)
        assert not re.search(r'(?:src=|<link[^>]* href=)"(?:https?:)?//', answer.text)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_the_series_page_works_without_javascript(client, built):
    page = client.get(f"/series/{built.series[0].id}").text
    assert "<noscript>" in page
    assert "2.61" in words_of(page)


def test_the_library_is_served_from_here_with_its_licence(client):
    for name in ("plotly-basic.min.js", "plotly-basic.LICENSE.txt"):
        with client.get(f"/assets/vendor/{name}") as answer:
            assert answer.status_code == 200
            assert "MIT" in answer.text
