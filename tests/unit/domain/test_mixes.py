import json
from pathlib import Path

import pytest

from service.domain.mixes import effect_on_step, load_mixes, problem_key, read_mix, weigh

TABLE = Path(__file__).parents[3] / "kernels_under_test" / "shapes.jsonl"
MIX = read_mix(
    json.dumps(
        {
            "name": "toy",
            "device": "cpu",
            "terms": [
                {"problem": "gemm", "axes": {"n": 2, "m": 1}, "count": 3},
                {"problem": "norm", "axes": {"rows": 4}, "count": 2},
                {"problem": "rope", "axes": {"t": 4}, "count": 5},
            ],
        }
    )
)


def test_every_term_of_every_mix_is_a_workload_of_the_suite():
    rows = map(json.loads, TABLE.read_text().splitlines())
    known = {problem_key(row["problem"], row["axes"]) for row in rows}
    mixes = load_mixes()
    assert len(mixes) >= 6
    assert [(mix.name, term) for mix in mixes for term in mix.terms if term.problem_key not in known] == []


def test_a_step_is_the_sum_of_its_kernels_and_says_what_is_missing():
    step = weigh(MIX, {"gemm[m=1,n=2]": 1.0, "norm[rows=4]": 0.5})
    assert step.time_s == pytest.approx(4.0)
    assert step.share == {"gemm[m=1,n=2]": 0.75, "norm[rows=4]": 0.25}
    assert step.missing == ("rope[t=4]",)


def test_a_change_of_one_kernel_counts_by_its_share():
    step = weigh(MIX, {"gemm[m=1,n=2]": 1.0, "norm[rows=4]": 0.5})
    assert effect_on_step(step, {"norm[rows=4]": 0.12}) == pytest.approx(0.03)
    assert effect_on_step(step, {"elsewhere": 0.5}) == 0.0


def test_nothing_measured_is_no_step():
    step = weigh(MIX, {})
    assert step.time_s == 0.0
    assert step.share == {}
    assert len(step.missing) == 3


def test_a_mix_that_leaves_parts_of_its_model_out_says_so():
    (partial,) = (mix for mix in load_mixes() if mix.name.startswith("DeepSeek-V3 decode"))
    assert "experts" in partial.note
    assert MIX.note == ""
