from dataclasses import replace

import numpy as np
import pytest

from runners.api import Implementation, Problem, Tolerance
from runners.measure.correctness import (
    WHOLE_UP_TO_FLOPS,
    SampledRows,
    check,
    make_inputs,
    output_hash,
    reference,
    round_bf16,
    round_e4m3,
    round_f16,
)


def build(*, tolerance=None, dtype="f32"):
    tolerance = tolerance or Tolerance(rtol=1e-3, atol=1e-3, rel_l2=1e-3)
    problem = Problem(
        name="p", family="f", axes=("n",),
        inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"], dtype=np.float32), "at": np.arange(axes["n"])},
        reference=lambda values, axes: values["x"] * 2,
        flops=lambda axes: 1.0, bytes=lambda axes, dtype: 1.0, tolerance=lambda dtype, axes: tolerance, workloads=(),
    )  # fmt: skip
    return Implementation(
        name="k", problem=problem, device="cpu", dtype=dtype, prepare=lambda *_: None, module_name="m"
    )


EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])


def judge(output, **options):
    return check(build(**options), {"n": 4}, output, EXPECTED)


def test_a_result_within_tolerance_passes():
    assert judge((EXPECTED + 5e-4).astype(np.float32)) is None


def test_the_worst_value_is_named_with_its_place_and_what_was_allowed():
    wrong = EXPECTED.copy()
    wrong[1, 1] += 0.5
    wrong[0, 0] += 0.1
    assert judge(wrong) == (
        "2 of 4 values are off; the worst at [1, 1]: got 4.5, reference 4 (off by 0.5, allowed 0.005); "
        "relative L2 error 0.11"
    )


def test_a_small_error_everywhere_is_caught_by_the_norm():
    tolerance = Tolerance(rtol=0.1, atol=0.1, rel_l2=1e-3)
    assert judge(EXPECTED * 1.01, tolerance=tolerance) == "the relative L2 error is 0.01, allowed 0.001"


def test_a_share_of_outliers_may_be_allowed():
    wrong = EXPECTED.copy()
    wrong[0, 0] += 0.05
    assert judge(wrong, tolerance=Tolerance(rtol=1e-3, atol=1e-3, rel_l2=1.0, outlier_share=0.25)) is None
    assert judge(wrong, tolerance=Tolerance(rtol=1e-3, atol=1e-3, rel_l2=1.0, outlier_share=0.2)) is not None


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_never_right(strange):
    wrong = EXPECTED.copy()
    wrong[0, 1] = strange
    assert judge(wrong, tolerance=Tolerance(rtol=np.inf, atol=np.inf, rel_l2=np.inf, outlier_share=1.0)).startswith(
        "1 of 4 values are not finite, the first at (0, 1)"
    )


def test_infinity_is_right_where_the_reference_has_it():
    expected = np.array([-np.inf, 1.0])
    assert check(build(), {"n": 2}, np.array([-np.inf, 1.0]), expected) is None
    assert check(build(), {"n": 2}, np.array([3.0, 1.0]), expected) is not None


def test_another_shape_is_told():
    assert judge(np.zeros((2, 3))) == "the output has shape (2, 3), the reference (2, 2)"


def test_nothing_is_not_a_result():
    assert check(build(), {"n": 0}, np.zeros(0), np.zeros(0)) == "the output is empty"


def test_the_reference_is_computed_in_double_precision_from_the_inputs():
    implementation = build()
    inputs = make_inputs(implementation, {"n": 8}, seed=3)
    expected = reference(implementation, inputs, {"n": 8})
    assert expected.dtype == np.float64
    assert (expected == inputs["x"].astype(np.float64) * 2).all()


def test_a_seed_decides_the_inputs():
    first, again, other = (make_inputs(build(), {"n": 8}, seed=seed)["x"] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(("dtype", "bits"), [("bf16", 8), ("f16", 11), ("fp8", 4)])
def test_inputs_hold_only_what_the_dtype_can_hold(dtype, bits):
    inputs = make_inputs(build(dtype=dtype), {"n": 1000}, seed=1)
    fraction, _ = np.frexp(inputs["x"][np.abs(inputs["x"]) > 0.02])
    assert (fraction * 2.0**bits == np.rint(fraction * 2.0**bits)).all()
    assert inputs["x"].dtype == np.float32
    assert inputs["at"].dtype.kind == "i"


def test_rounding_goes_to_the_nearest_and_ties_to_even():
    values = np.array([1.0 + 2**-8, 1.0 + 3 * 2**-8, -1.0 - 2**-9], np.float32)
    assert round_bf16(values).tolist() == [1.0, 1.0 + 2**-6, -1.0]
    assert round_f16(np.array([1.0 + 2**-11], np.float32)).tolist() == [1.0]
    assert round_e4m3(np.array([1000.0, 17.0, 19.0, 0.001, 2.0**-9, -0.3], np.float32)).tolist() == [
        448.0, 16.0, 20.0, 0.001953125 / 2 * 0 + 0.001953125, 2.0**-9, -0.3125,
    ]  # fmt: skip


def test_the_hash_sees_bits_shape_and_type():
    zeros = np.zeros(4, np.float32)
    hashes = {output_hash(made) for made in (zeros, -zeros, zeros.reshape(2, 2), zeros.astype(np.int32))}
    assert len(hashes) == 4
    assert output_hash(zeros) == output_hash(np.zeros(8, np.float32)[::2])


def test_of_large_work_some_rows_are_computed_and_judged():
    def some_rows(values, axes, rng):
        rows = rng.choice(4, 2, replace=False)
        return rows, values["x"].reshape(4, -1)[rows].astype(np.float64) * 2

    small = replace(build().problem, sample=some_rows)
    large = replace(small, flops=lambda axes: 2 * WHOLE_UP_TO_FLOPS)
    kernel, axes = replace(build(), problem=large), {"n": 12}
    inputs = make_inputs(kernel, axes, seed=3)
    expected = reference(kernel, inputs, axes)
    assert isinstance(expected, SampledRows)
    assert not isinstance(reference(replace(kernel, problem=small), inputs, axes), SampledRows)
    right = (inputs["x"] * 2).reshape(4, 3)
    assert check(kernel, axes, right, expected) is None
    wrong = right.copy()
    wrong[expected.rows[1], 2] += 1.0
    assert "1 of 6 values are off" in check(kernel, axes, wrong, expected)
    unseen = right.copy()
    unseen[next(iter({0, 1, 2, 3} - set(expected.rows))), 0] = np.nan
    assert "not finite" in check(kernel, axes, unseen, expected)
    assert "shape" in check(kernel, axes, right[:1], expected)
    again = reference(kernel, inputs, axes)
    assert (again.rows == expected.rows).all()
