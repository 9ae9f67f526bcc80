"""A merge or a bump as the culprit: the page offers the inner range, and the command that it shows searches it."""

from __future__ import annotations

import html
import re
import shlex

from sqlalchemy import select

from runners.history import steps_between
from service.store.tables import Regression
from tests.story import Planted, Story


def page_of(sessions, client, *, origin: dict) -> str:
    """The page of a named regression of which git has said `origin`."""
    plans = [Planted()] * 11
    plans[8] = Planted({"moe": 1.2})
    story = Story(sessions, plans, seed=51)
    for tip in (2, 4, 6, 8):
        story.push(tip)
    with sessions.begin() as session:
        regression = session.scalars(select(Regression)).one()
        assert regression.culprit_commit_id is not None
        regression.origin = {"owners": [], "inner": [], "fork": None, "bumps": [], **origin}
        regression_id = regression.id
    return client.get(f"/regressions/{regression_id}").text


def offered(page: str, *, after: str) -> list[str]:
    """The words of the bisection command that stands behind some text of a page."""
    found = re.search(r"<pre>(kernelwatch bisect .*?)</pre>", page[page.index(after) :])
    assert found is not None
    return shlex.split(html.unescape(found.group(1)))


def test_a_merge_offers_a_search_of_its_side_that_holds_every_inner_commit(sessions, client, git_repo):
    fork = git_repo.kernel("start")
    git_repo.git("checkout", "-q", "-b", "side")
    inner = [git_repo.kernel(name, subject=f"Inner {name}") for name in ("one", "two", "three")]
    git_repo.checkout("main")
    git_repo.docs("words")
    git_repo.merge("side")
    facts = [{"sha": sha, "subject": f"Inner {name}", "author": "Ada"} for name, sha in enumerate(inner)]
    page = page_of(sessions, client, origin={"inner": facts, "fork": fork})
    assert "A merge of 3 commits" in page
    _, verb, good, bad, option, kernel = offered(page, after="A merge of")
    assert (verb, option) == ("bisect", "--kernel")
    assert kernel.startswith("moe_f32[")
    steps = steps_between(git_repo.path, good, bad, suite="kernels_under_test")
    assert [step.sha for step in steps] == [fork, *inner]


def test_a_bump_of_a_registered_repository_offers_a_search_of_what_it_brought(sessions, client, git_repo):
    before = git_repo.kernel("one")
    inner = [git_repo.kernel(name) for name in ("two", "three")]
    bump = {"place": "https://git.example.org/acme/library.git", "before": before, "after": inner[-1]}
    page = page_of(sessions, client, origin={"bumps": [{**bump, "repository": "acme/library"}]})
    assert "acme/library" in page
    _, _, good, bad, _, _ = offered(page, after="It moves")
    steps = steps_between(git_repo.path, good, bad, suite="kernels_under_test")
    assert [step.sha for step in steps[1:]] == inner
