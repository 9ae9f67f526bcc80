"""The commands that people copy."""

from __future__ import annotations

import pytest

from service.domain.reproduce import clone_command, compare_command


def test_a_named_commit_is_compared_with_its_parent_else_both_ends_are():
    ends = {"good_sha": "a" * 40, "bad_sha": "b" * 40}
    assert compare_command(**ends, culprit_sha="c" * 40, workload="gemm[m=64]") == (
        f"kernelwatch compare {'c' * 12}~1 {'c' * 12} --kernel 'gemm[m=64]'"
    )
    assert compare_command(**ends, culprit_sha=None, workload=None) == f"kernelwatch compare {'a' * 12} {'b' * 12}"


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("https://example.org/acme/kernels.git", "git clone 'https://example.org/acme/kernels.git' 'kernels' && cd 'kernels'"),
        ("https://me:secret@example.org/k", "git clone 'https://example.org/k' 'k' && cd 'k'"),
        ("git@example.org:acme/kernels.git", "git clone 'git@example.org:acme/kernels.git' 'kernels' && cd 'kernels'"),
        ("/data/my forge.git/", "git clone '/data/my forge.git/' 'my forge' && cd 'my forge'"),
    ],
)  # fmt: skip
def test_a_clone_is_one_line_and_carries_no_password(url, command):
    assert clone_command(url) == command
