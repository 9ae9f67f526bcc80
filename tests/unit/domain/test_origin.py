"""CODEOWNERS as its forges read it, and dependency bumps as diffs show them."""

from __future__ import annotations

import pytest

from service.domain.origin import Bump, bumps_in, owners_of, pattern_of, same_repository, submodule_urls

OWNERS = """
# everybody looks at everything
*                 @all
/kernels/         @kernels @ada   # the folder
*.cu              @gpu
docs/*            @writers
kernels/legacy/
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ("@all",)),
        ("kernels/gemm.c", ("@kernels", "@ada")),
        ("kernels/moe/route.cu", ("@gpu",)),  # the last match decides, not the longest
        ("docs/a.md", ("@writers",)),
        ("docs/deep/a.md", ("@all",)),
        ("kernels/legacy/old.c", ()),  # a pattern without names takes ownership away
    ],
)
def test_the_last_matching_line_decides(path, owners):
    assert owners_of(OWNERS, [path]) == owners


def test_owners_of_several_paths_are_named_once():
    assert owners_of(OWNERS, ["kernels/a.c", "kernels/b.c", "x.cu"]) == ("@kernels", "@ada", "@gpu")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("gemm.c", "a/b/gemm.c", True),
        ("/gemm.c", "a/gemm.c", False),
        ("a/**/z.c", "a/z.c", True),
        ("a/**/z.c", "a/b/c/z.c", True),
        ("a?.c", "a/.c", False),
        ("a.c", "abc", False),
        ("build/", "src/build/x", True),
        ("a/b", "a/b/c", True),
    ],
)
def test_patterns_match_as_gitignore_does(pattern, path, matches):
    assert bool(pattern_of(pattern).fullmatch(path)) is matches


def test_a_moved_submodule_and_a_moved_pin_are_bumps_and_nothing_else_is():
    old, new = "a" * 40, "b" * 40
    diff = f"""diff --git a/third/lib b/third/lib
--- a/third/lib
+++ b/third/lib
@@ -1 +1 @@
-Subproject commit {old}
+Subproject commit {new}
diff --git a/requirements.txt b/requirements.txt
-kernels @ git+https://git.example.org/acme/kernels.git@1111111
-other==1.2
+kernels @ git+https://git.example.org/acme/kernels.git@2222222
+other==1.3
+fresh @ git+https://git.example.org/acme/fresh@3333333
"""
    assert bumps_in(diff) == (
        Bump("third/lib", old, new),
        Bump("https://git.example.org/acme/kernels.git", "1111111", "2222222"),
    )


def test_clone_urls_of_one_repository_are_the_same_whatever_the_protocol():
    assert same_repository("git@git.example.org:acme/kernels.git", "https://git.example.org/acme/kernels")
    assert not same_repository("https://git.example.org/acme/kernels", "https://git.example.org/acme/kernels2")
    assert submodule_urls('[submodule "x"]\n\tpath = third/x\n\turl = https://e.org/x\n') == {
        "third/x": "https://e.org/x"
    }
