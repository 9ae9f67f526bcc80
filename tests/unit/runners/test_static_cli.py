"""What the static gate says of two commits' facts, and with which exit code."""

from dataclasses import replace

import pytest

from runners.static_cli import Side, as_table, compare_sides, exit_code
from service.contract import StaticReport

TARGETS = ("cpu", "sm_80", "sm_90a", "sm_100a")
BASE = StaticReport(
    sha="a",
    benchmark="gemm",
    family="gemm",
    version=1,
    problem="gemm",
    device="cuda",
    control=False,
    target="sm_90a",
    toolchain="nvrtc 13",
    code_hash="c0de",
    recipe_hash="r",
    facts={"registers": 64.0, "stack_bytes": 0.0, "spill_store_bytes": 0.0, "sass.tensor": 32.0},
)


def edited(code="c1de", **facts):
    return replace(BASE, code_hash=code, facts=BASE.facts | facts)


def side(*reports, **more):
    return Side({(one.benchmark, one.target): one for one in reports}, **more)


def gate(before, after):
    rows = compare_sides(before, after, targets=TARGETS)
    unread = [s.unread for s in (before, after) if s.unread]
    return rows, exit_code(rows, unread)


@pytest.mark.parametrize(
    ("head", "finding", "code"),
    [
        (BASE, "same", 0),
        (edited(), "look here", 0),
        (edited("c0de", registers=65.0), "look here", 0),
        (edited(stack_bytes=272.0), "warning", 1),
        (edited(spill_store_bytes=4.0), "warning", 1),
        (edited(registers=32.0), "look here", 0),
    ],
)
def test_a_change_is_classified(head, finding, code):
    (row,), found = gate(side(BASE), side(head))
    assert (row.finding, found) == (finding, code)


def test_a_warning_on_one_architecture_is_not_hidden_by_the_others():
    quiet = [replace(BASE, target=target) for target in TARGETS[1:]]
    loud = [*quiet[:2], replace(edited(spill_load_bytes=8.0), target="sm_100a")]
    rows, code = gate(side(*quiet), side(*loud))
    assert [row.finding for row in rows] == ["same", "same", "warning"]
    assert code == 1


def test_the_table_names_what_changed_and_counts_the_rest():
    rows, _ = gate(side(BASE), side(edited(registers=32.0, stack_bytes=272.0)))
    table = as_table(rows, unread=[], show_all=False)
    assert "registers 64 → 32" in table
    assert "stack_bytes 0 → 272" in table
    assert "machine code c0de → c1de" in table
    assert table.endswith("1 warning")


def test_what_only_one_side_has_is_missing():
    (row,), code = gate(side(BASE), side())
    assert (row.finding, row.reason, code) == ("missing", "head: has no such kernel", 2)
    (row,), code = gate(side(), side(missing={"gemm": "cannot be built: error"}))
    assert (row.finding, code) == ("missing", 2)
    assert "cannot be built" in row.reason


def test_an_architecture_that_neither_supports_has_not_changed_and_one_that_is_lost_is_missing():
    unsupported = replace(BASE, code_hash=None, facts={}, error="NVRTC for sm_80: needs sm_90")
    (row,), code = gate(side(unsupported), side(unsupported))
    assert (row.finding, code) == ("same", 0)
    (row,), code = gate(side(BASE), side(unsupported))
    assert (row.finding, code) == ("missing", 2)
    assert "needs sm_90" in row.reason


def test_nothing_compared_and_sources_that_were_not_read_are_not_green():
    assert gate(side(), side())[1] == 2
    assert gate(side(BASE), side(BASE, unread="NVRTC is not installed"))[1] == 2
