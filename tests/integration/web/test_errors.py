"""What is not there, or not allowed: a page for a browser, problem+json for a program, words for the rest."""

from __future__ import annotations

import pytest

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nothing", "/series", "/regressions/one/two", "/runs/999999999999999999999x"])
def test_a_browser_gets_a_page_with_the_way_home(service, path):
    answer = service.http.get(path, headers=BROWSER)
    assert (answer.status_code, answer.mimetype) == (404, "text/html")
    assert '<nav aria-label="Pages">' in answer.text
    assert "To the overview" in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_browser_gets_a_page_for_a_method_that_is_not_allowed(service):
    answer = service.http.delete("/regressions", headers=BROWSER)
    assert (answer.status_code, answer.mimetype) == (405, "text/html")
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("path", ["/api", "/api/nothing", "/api/v1/nothing", "/webhooks/nobody", "/healthz/x"])
def test_a_program_gets_problem_json_whatever_it_accepts(service, path):
    answer = service.http.get(path, headers=BROWSER)
    assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")
    assert answer.json["status"] == 404


def test_a_terminal_gets_words(service):
    answer = service.http.get("/nothing", headers={"Accept": "*/*"})
    assert (answer.status_code, answer.mimetype) == (404, "text/plain")
