"""What a person reads of two commits' machine code."""

import pytest

from service.contract import StaticFinding
from service.domain.code_changes import Code, change_of

FACTS = {"registers": 64.0, "stack_bytes": 0.0, "spill_load_bytes": 0.0}


def code(code_hash="a", recipe="r", error=None, **facts):
    return Code("s", code_hash, recipe, {} if error else FACTS | facts, error)


def change(before, after):
    return change_of(benchmark="k", target="sm_80", toolchain="t", before=before, after=after)


@pytest.mark.parametrize(
    ("after", "finding", "words"),
    [
        (code(), StaticFinding.SAME, "the same code"),
        (code("b"), StaticFinding.LOOK_HERE, "other machine code"),
        (code("b", registers=32.0), StaticFinding.LOOK_HERE, "registers 64 → 32, other machine code"),
        (code("b", spill_load_bytes=8.0), StaticFinding.WARNING, "spill_load_bytes 0 → 8, other machine code"),
        (code("b", **{"sass.tensor": 4.0}), StaticFinding.LOOK_HERE, "sass.tensor none → 4, other machine code"),
        (code(None, error="x"), StaticFinding.LOOK_HERE, "does not compile any more"),
    ],
)
def test_a_change_is_named(after, finding, words):
    found = change(code(), after)
    assert (found.finding, found.words) == (finding, words)


def test_a_target_that_never_compiled_has_not_changed():
    assert change(code(None, error="a"), code(None, error="b")).finding is StaticFinding.SAME
    assert change(code(None, error="a"), code()).words == "compiles again"


def test_another_recipe_around_the_same_code_is_told_but_is_no_finding():
    found = change(code(), code(recipe="other"))
    assert (found.finding, found.recipe_changed, found.code_changed) == (StaticFinding.SAME, True, False)
