import shutil
from pathlib import Path

import pytest

from runners.measure import static
from runners.measure.library import compile_library

SOURCE = """
{header}
#include <string.h>
static const float scale[4] = {{1, 2, 3, {last}}};
float {name}(const float *x, int n) {{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * scale[i & 3];
    return sum;
}}
{more}
"""


@pytest.fixture
def code_of(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    count = iter(range(100))

    def build(*, header="", last="4", name="dot", more="", flags=()):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        source = folder / "kernel.c"
        source.write_text(SOURCE.format(header=header, last=last, name=name, more=more))
        return static.object_code(compile_library([source], flags, folder / "build", arch="x86-64-v3").read_bytes())

    return build


def test_comments_names_and_paths_do_not_change_the_code(code_of):
    assert code_of() == code_of(header="/* a comment */", name="scaled_dot_product_with_a_much_longer_name")


@pytest.mark.parametrize(
    "change", [{"last": "5"}, {"flags": ("-O1",)}, {"more": "int extra(int x) { return x * 7; }"}], ids=str
)
def test_instructions_constants_and_flags_do(code_of, change):
    assert code_of()["code_hash"] != code_of(**change)["code_hash"]


def test_calling_another_function_is_a_change_though_the_instructions_are_equal(code_of):
    one = code_of(more="int puts(const char *); int say(const char *s) { return puts(s); }")
    other = code_of(more="int atoi(const char *); int say(const char *s) { return atoi(s); }")
    assert one["code_hash"] != other["code_hash"]


def test_the_size_is_that_of_the_instructions(code_of):
    assert code_of(more="int extra(int x) { return x * 7 + 1; }")["text_bytes"] > code_of()["text_bytes"] > 50


def test_what_is_not_elf_is_refused():
    with pytest.raises(ValueError, match="ELF"):
        static.read_sections(b"MZ" + bytes(100))


def test_a_recipe_is_its_syntax_not_its_words(tmp_path):
    def recipe(text, extra=()):
        path = tmp_path / "k.py"
        path.write_text(text)
        return static.recipe_hash([path], extra)

    plain = recipe("def f(x):\n    return x + 1\n")
    assert recipe('"""Doc."""\n\n# words\ndef f(x):\n    """Doc."""\n    return x + 1\n') == plain
    assert recipe("def f(x):\n    return x + 2\n") != plain
    assert recipe("def f(x):\n    return x + 1\n", ("-O2",)) != plain


def test_a_recipe_follows_relative_imports_within_the_suite(tmp_path):
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "fast.py").write_text("from .problem import P\nfrom .._arrays import zeros\nimport os\n")
    (tmp_path / "gemm" / "problem.py").write_text("P = 1\n")
    (tmp_path / "_arrays.py").write_text("zeros = 0\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    found = static.python_closure(tmp_path, tmp_path / "gemm" / "fast.py")
    assert {Path(p).name for p in found} == {"fast.py", "problem.py", "_arrays.py"}
