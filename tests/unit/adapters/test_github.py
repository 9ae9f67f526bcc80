"""GitHub's signature, by the vector of its own documentation."""

from __future__ import annotations

from service.adapters import github

SECRET, BODY = "It's a Secret to Everybody", b"Hello, World!"
SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_the_documented_vector_is_valid():
    assert github.sign(SECRET, BODY) == SIGNATURE
    assert github.signature_is_valid(SECRET, BODY, SIGNATURE)


def test_anything_else_is_not():
    for header in (None, "", "sha256=", SIGNATURE[7:], SIGNATURE.upper(), SIGNATURE + "0", "sha1" + SIGNATURE[6:]):
        assert not github.signature_is_valid(SECRET, BODY, header)
    assert not github.signature_is_valid(SECRET, BODY + b"\n", SIGNATURE)
    assert not github.signature_is_valid("other", BODY, SIGNATURE)
