"""What counts as a change: the service's default, the repository's, a workload's."""

from __future__ import annotations

import pytest

from service.usecases.policy import DetectionPolicy, PolicyError, with_overrides

OWN = {
    "detection": {
        "min_effect": 0.03,
        "workloads": {"moe_f32*": {"min_effect": 0.08}, "moe_f32[e=8*": {"min_effect": 0.05, "confidence": 0.999}},
    }
}


def test_a_repository_overrides_the_service_and_a_workload_the_repository():
    policy = with_overrides(DetectionPolicy(), OWN)
    assert policy.of("gemm_f32[k=1]").min_effect == 0.03
    assert policy.of("moe_f32[e=4,t=1]").min_effect == 0.08
    assert policy.of("moe_f32[e=8,t=1]") == DetectionPolicy(min_effect=0.05, confidence=0.999)


def test_brackets_of_a_workload_key_may_be_written_as_they_are():
    policy = DetectionPolicy(workloads={"gemm_f32[k=8,m=8,n=8]": {"min_effect": 0.1}})
    assert policy.of("gemm_f32[k=8,m=8,n=8]").min_effect == 0.1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"min_effect": 0.0}, "above 0"),
        ({"min_effect": 3.0}, "at most 0.5"),
        ({"confidence": 0.5}, "at least 0.9"),
        ({"treshold": 0.1}, "unknown setting 'treshold'"),
        ({"workloads": {"gemm*": {"min": 0.1}}}, "'gemm\\*' sets 'min'"),
        ({"workloads": {"gemm*": {"min_effect": -1.0}}}, "above 0"),
    ],
)
def test_a_policy_that_means_nothing_is_refused_with_what_would_be_right(values, sentence):
    with pytest.raises(PolicyError, match=sentence):
        with_overrides(DetectionPolicy(), {"detection": values})
