import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest

from runners.errors import BuildError
from runners.measure.library import compile_library, load_library

SOURCE = "int answer(void) { return ANSWER; }\n"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "answer.c"
    path.write_text("#define ANSWER 42\n" + SOURCE)
    return path


def answer(path):
    return load_library(path).answer()


def test_a_library_computes_what_its_source_says(source, tmp_path):
    assert answer(compile_library([source], [], tmp_path / "build")) == 42


def test_an_unchanged_source_is_compiled_once(source, tmp_path):
    first = compile_library([source], [], tmp_path / "build")
    written = first.stat().st_mtime_ns
    assert compile_library([source], [], tmp_path / "build") == first
    assert first.stat().st_mtime_ns == written


@pytest.mark.parametrize("flags", [["-O1"], ["-DUNUSED=1"]])
def test_flags_are_part_of_the_name(source, tmp_path, flags):
    assert compile_library([source], flags, tmp_path) != compile_library([source], [], tmp_path)


def test_a_changed_header_gives_a_new_library(source, tmp_path):
    source.write_text('#include "sub/answer.h"\n' + SOURCE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "answer.h").write_text('#include "value.h"\n')
    value = tmp_path / "sub" / "value.h"
    value.write_text("#define ANSWER 1\n")
    before = compile_library([source], [], tmp_path / "build")
    value.write_text("#define ANSWER 2\n")
    after = compile_library([source], [], tmp_path / "build")
    assert (answer(before), answer(after)) == (1, 2)


def test_an_implementation_may_override_the_optimisation(source, tmp_path):
    source.write_text("int answer(void) {\n#ifdef __OPTIMIZE__\nreturn 1;\n#else\nreturn 0;\n#endif\n}\n")
    assert answer(compile_library([source], [], tmp_path)) == 1
    assert answer(compile_library([source], ["-O0"], tmp_path)) == 0


def test_an_unknown_processor_falls_back_to_the_portable_one(source, tmp_path):
    assert answer(compile_library([source], [], tmp_path, arch="no-such-processor")) == 42


def test_a_compile_error_carries_the_words_of_the_compiler(source, tmp_path):
    source.write_text("int answer(void) { return undeclared_thing; }\n")
    with pytest.raises(BuildError, match="undeclared_thing") as caught:
        compile_library([source], [], tmp_path / "build")
    assert "undeclared_thing" in caught.value.log_tail
    assert list((tmp_path / "build").iterdir()) == []


def test_a_machine_without_compiler_is_told_so(source, tmp_path):
    with pytest.raises(BuildError, match="install gcc or set CC"):
        compile_library([source], [], tmp_path, compiler="no-such-compiler")


def test_a_source_that_vanished_is_named(tmp_path):
    with pytest.raises(BuildError, match=r"gone\.c does not exist"):
        compile_library([tmp_path / "gone.c"], [], tmp_path)


def test_concurrent_builds_leave_one_whole_library(source, tmp_path):
    build = tmp_path / "build"
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: compile_library([source], [], build), range(8)))
    assert list(build.iterdir()) == list(paths)
    assert ctypes.CDLL(str(paths.pop())).answer() == 42


def test_a_library_that_is_not_one_is_a_build_error(tmp_path):
    (tmp_path / "broken.so").write_bytes(b"not a library")
    with pytest.raises(BuildError, match=r"broken\.so cannot be loaded"):
        load_library(tmp_path / "broken.so")
