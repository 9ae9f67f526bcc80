"""The demo's verdict: every way of being wrong is complained of, and only being right passes."""

from __future__ import annotations

import dataclasses

import pytest

from service.local.demo.history import MadeCommit, MadePush
from service.local.demo.plan import PlannedCommit, Planted
from service.local.demo.table import NextSteps, judge, render
from service.local.demo.watch import Found, ToldBreakage, Totals

SLOW = MadeCommit(PlannedCommit("tile", (), Planted.REGRESSION, "gemm"), "a" * 40, 3)
QUICK = MadeCommit(PlannedCommit("rows", (), Planted.IMPROVEMENT, "moe"), "b" * 40, 7)
PLAIN = MadeCommit(PlannedCommit("docs"), "c" * 40, 8)
WRONG = MadeCommit(PlannedCommit("weights", (), Planted.WRONG_RESULT, "moe"), "d" * 40, 9)
UNBUILT = MadeCommit(PlannedCommit("stride", (), Planted.BROKEN_BUILD), "e" * 40, 2)
PUSHES = (MadePush((UNBUILT, SLOW, PLAIN)), MadePush((QUICK,)), MadePush((PLAIN, WRONG)))
TOLD = (("mail", "attributed", 1), ("mail", "opened", 1))
FOUND = (
    Found(1, "regression", "attributed", SLOW.sha, frozenset({"gemm"}), 0.14, 4, 9.0, TOLD),
    Found(2, "improvement", "attributed", QUICK.sha, frozenset({"moe"}), -0.2, 3, 8.0, TOLD),
)
CAUGHT = {("mail", 1): 2, ("mail", 2): 2}


BROKEN = ToldBreakage("wrong_result", WRONG.sha, "mail", "broken")
REPAIRED = dataclasses.replace(BROKEN, event="repaired")


def verdict(found=FOUND, caught=CAUGHT, breakages=(BROKEN, REPAIRED)):
    return judge(PUSHES, found, breakages=breakages, channels=("mail",), caught=caught)


def changed(**values):
    return (dataclasses.replace(FOUND[0], **values), FOUND[1])


def test_exactly_the_planted_commits_told_once_each_passes():
    assert verdict().passed


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (FOUND[1:], "not found"),
        ((*FOUND, dataclasses.replace(FOUND[0], regression_id=3)), "found 2 times"),
        (changed(families=frozenset({"gemm", "moe"})), "blamed for gemm, moe"),
        (changed(told=TOLD[1:]), "mail heard only of: opened"),
        (changed(told=()), "mail heard only of: nothing"),
        (changed(told=(("mail", "attributed", 2), ("mail", "opened", 1))), "mail was told 2 times: attributed"),
    ],
)
def test_what_is_wrong_with_a_planted_commit_is_said(found, complaint):
    judged = verdict(found)
    assert not judged.passed
    assert complaint in judged.rows[0].complaints


@pytest.mark.parametrize(
    "found",
    [
        changed(culprit_sha=PLAIN.sha),
        changed(culprit_sha=None),
        changed(direction="improvement"),
        (*FOUND, Found(9, "regression", "confirmed", PLAIN.sha, frozenset({"attention"}), 0.03, 1, 0.0, ())),
    ],
)
def test_anything_else_that_was_found_is_a_false_alarm(found):
    judged = verdict(found)
    assert not judged.passed
    assert len(judged.false_alarms) == 1


@pytest.mark.parametrize(
    "breakages",
    [
        (),
        (BROKEN,),
        (BROKEN, BROKEN, REPAIRED),
        (BROKEN, REPAIRED, dataclasses.replace(BROKEN, sha=UNBUILT.sha, kind="build_failed")),
        (BROKEN, REPAIRED, dataclasses.replace(BROKEN, sha=SLOW.sha)),
    ],
)
def test_a_breakage_at_the_tip_of_a_push_is_told_once_and_once_when_it_is_over_and_no_other_is(breakages):
    assert verdict().passed
    assert not verdict(breakages=breakages).passed


@pytest.mark.parametrize("arrived", [0, 1, 3])
def test_messages_that_arrived_must_be_those_that_were_sent(arrived):
    judged = verdict(caught={**CAUGHT, ("mail", 1): arrived})
    assert judged.rows[0].complaints == (f"{arrived} messages arrived at mail for 2 events",)


def test_table_shows_commit_effect_cost_link_and_ends_with_the_verdict():
    totals = Totals(runs=20, failed_runs=0, measurements=300, wrong_results=3, device_s=200.0)
    shown = render(verdict(), totals, web_url="http://x", catcher_url="http://y", wall_s=300.0)
    for part in (
        "aaaaaaaaaa  tile",
        "+14.0%",
        "9.0 device-seconds",
        "http://x/regressions/1",
        "3 wrong results",
        "http://y",
    ):
        assert part in shown
    assert shown.splitlines()[-1] == "exactly the planted commits were found"
    failed = render(verdict(FOUND[1:]), totals, web_url="http://x", catcher_url=None, wall_s=300.0)
    assert "MISSED" in failed
    assert failed.splitlines()[-1] == "the demo FAILED"


def test_the_next_step_is_one_line_to_copy():
    command = f"kernelwatch compare {'a' * 12}~1 {'a' * 12} --kernel 'gemm_f32[m=64]'"
    totals = Totals(runs=20, failed_runs=0, measurements=300, wrong_results=3, device_s=200.0)
    shown = render(
        verdict(changed(reproduce=command)),
        totals,
        web_url="http://x",
        catcher_url=None,
        wall_s=300.0,
        steps=NextSteps(sign_in_url="http://x/sign-in#t", clone_url="/data/forge.git", program="/my venv/kernelwatch"),
    )
    assert "http://x/sign-in#t" in shown
    assert (
        f"  git clone '/data/forge.git' 'forge' && cd 'forge' && '/my venv/{command.replace(' ', chr(39) + ' ', 1)}"
        in shown
    )
