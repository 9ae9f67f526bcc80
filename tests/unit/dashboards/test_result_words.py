"""What the evidence says of the results of both sides."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dashboards.evidence import result_words


def side(*hashes):
    return [SimpleNamespace(output_hash=one) for one in hashes]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (side("a" * 40), side("a" * 40, "a" * 40), "the same bits on both sides, aaaaaaaaaaaa"),
        (side("a" * 40), side("b" * 40), "other bits (aaaaaaaaaaaa → bbbbbbbbbbbb), both within the tolerance"),
        (side(None), side("b" * 40), ""),
        ([], [], ""),
    ],
)
def test_the_same_bits_other_bits_and_no_hash_are_told_apart(before, after, words):
    assert result_words(before, after).startswith(words)
    assert bool(words) == bool(result_words(before, after))
