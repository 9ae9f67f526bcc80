"""The GPU's canaries: what can be said of them without a GPU."""

import pytest

from runners.device.cuda.canary import FRAME_MIN_S, OPTIONS, SOURCE, repetitions
from runners.device.cuda.nvrtc import TARGETS, compile_facts, unavailable


@pytest.mark.parametrize("launch_s", [0.5e-3, 7e-3, 15e-3, 40e-3])
def test_a_frame_is_long_enough_to_feel_heat(launch_s):
    assert repetitions(launch_s) * launch_s >= FRAME_MIN_S
    assert (repetitions(launch_s) - 1) * launch_s < FRAME_MIN_S


@pytest.mark.parametrize("launch_s", [0.0, -1.0, float("nan"), 1e-9])
def test_a_lying_first_look_does_not_make_a_frame_endless(launch_s):
    assert repetitions(launch_s) == 64


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("target", TARGETS)
def test_the_canary_keeps_all_its_sums_in_registers(target):
    canary = next(f for f in compile_facts(SOURCE, target, OPTIONS) if f.kernel == "kernelwatch_canary")
    assert (canary.stack_bytes, canary.spill_store_bytes, canary.spill_load_bytes) == (0, 0, 0)
    assert canary.registers <= 128  # two blocks fit a multiprocessor
