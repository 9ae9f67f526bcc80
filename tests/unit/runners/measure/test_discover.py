import sys
from pathlib import Path

import pytest

from runners.api import Cache
from runners.errors import DiscoveryError
from runners.measure.discover import load_suite, missing_requirement

FROZEN = Path(__file__).parents[3] / "fixtures" / "suite_api_v1"

PROBLEM = """
from runners.api import Launch, Problem, Tolerance, Workload, implementation

def make(**changes):
    parts = dict(
        name="p", family="f", axes=("n",), inputs=lambda axes, rng: {}, reference=lambda values, axes: 0,
        flops=lambda axes: 1.0, bytes=lambda axes, dtype: 1.0, tolerance=lambda dtype, axes: Tolerance(0.0, 0.0, 0.0),
        workloads=(Workload(axes={"n": 1}),),
    )
    return Problem(**(parts | changes))
"""
USE = """
from ._make import *

P = make({changes})

@implementation("{name}", problem=P, device="{device}", dtype="f32"{more})
def prepare(ctx, inputs, axes):
    return Launch(run=lambda: None, output=lambda: 0)
"""


def suite(tmp_path, *, changes="", name="k", device="cpu", more="", file="kernel.py", extra=None):
    (tmp_path / "_make.py").write_text(PROBLEM)
    (tmp_path / file).write_text(USE.format(changes=changes, name=name, device=device, more=more))
    for path, text in (extra or {}).items():
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_suite_lists_workloads_of_a_tier_and_the_tiers_below_it():
    loaded = load_suite(FROZEN)
    keys = [bound.key for bound in loaded.workloads("nightly") if bound.implementation.name == "axpy_c"]
    assert keys == ["axpy_c[a=2.5,mode=plain,n=1000]", "axpy_c[a=0.5,mode=plain,n=1001]"]
    assert [b.key for b in loaded.workloads("core") if b.implementation.name == "axpy_c"] == keys[:1]


def test_an_implementation_is_not_offered_axes_it_does_not_support():
    keys = [bound.key for bound in load_suite(FROZEN).workloads("weekly")]
    assert "axpy_numpy[a=0.5,mode=other,n=1001]" in keys
    assert "axpy_c[a=0.5,mode=other,n=1001]" not in keys


def test_a_missing_library_is_named():
    by_name = {found.name: found for found in load_suite(FROZEN).implementations}
    assert missing_requirement(by_name["axpy_absent"]) == "a_library_nobody_has is not installed"
    assert missing_requirement(by_name["axpy_c"]) is None


def test_two_versions_of_a_suite_do_not_mix(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, name in ((old, "before"), (new, "after")):
        folder.mkdir()
        suite(folder, name=name)
    names = [[found.name for found in load_suite(folder).implementations] for folder in (old, new, old)]
    assert names == [["before"], ["after"], ["before"]]


def test_importing_a_suite_writes_nothing_beside_its_sources(tmp_path):
    before = sys.dont_write_bytecode
    load_suite(suite(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_make.py", "kernel.py"]
    assert sys.dont_write_bytecode is before


def test_find_names_the_workload_that_is_not_there(tmp_path):
    with pytest.raises(DiscoveryError, match=r"there is no workload 'k\[n=2\]'"):
        load_suite(suite(tmp_path)).find("k[n=2]")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"extra": {"zz.py": USE.format(changes="name='q'", name="k", device="cpu", more="")}}, "implementation 'k' is already defined in"),
        ({"extra": {"zz.py": USE.format(changes="", name="k2", device="cpu", more="")}}, "problem 'p' is already defined in kernel.py"),
        ({"changes": "reference=None"}, "kernel.py: the problem 'p' has no reference function"),
        ({"extra": {"bad.py": "from runners.api import Problem\nPROBLEM = Problem(name='p', family='f', axes=(), inputs=len)"}}, "bad.py: leaves out 'reference', 'flops'"),
        ({"changes": "axes=('n', 'm')"}, "a workload of 'p' lacks the axis m"),
        ({"changes": "axes=()"}, "a workload of 'p' has an unknown axis n"),
        ({"changes": "workloads=(Workload(axes={'n': [1]}),)"}, r"has n=\[1\]: an axis value is an int, a float or a str"),
        ({"changes": "workloads=(Workload(axes={'n': 'a b'}),)"}, "has n='a b': a str value is"),
        ({"changes": "workloads=(Workload(axes={'n': 1}), Workload(axes={'n': 1}))"}, r"the workload p\[n=1\] is listed twice"),
        ({"changes": "workloads=(Workload(axes={'n': 1}, tier='daily'),)"}, "is in the tier 'daily'"),
        ({"changes": "workloads=(Workload(axes={'n': 1}, device='tpu'),)"}, "is for the device 'tpu'"),
        ({"changes": "workloads=(Workload(axes={'n': 1}, device='cuda', cache='tepid'),)"}, "asks for the cache 'tepid': use warm or cold"),
        ({"changes": "workloads=(Workload(axes={'n': 1}, cache='cold'),)"}, "asks for a cold cache on 'cpu'"),
        ({"changes": "workloads=(Workload({'n': 1}, device='cuda', cache='cold'), Workload({'n': 1}, device='cuda', cache='cold'))"}, r"p\[n=1\]@cold is listed twice"),
        ({"device": "tpu"}, "k names the device 'tpu': use cpu or cuda"),
        ({"name": "My Kernel"}, "implementation name 'My Kernel' must be lower-case"),
        ({"more": ", sources=('gone.c',)"}, "k names the source 'gone.c', which is not beside it"),
        ({"extra": {"bad.py": "import a_library_nobody_has"}}, "bad.py: imports a_library_nobody_has, which is not installed"),
        ({"extra": {"bad.py": "1 / 0"}}, "bad.py: cannot be imported: ZeroDivisionError"),
        ({"extra": {"bad.py": "raise SystemExit(3)"}}, "bad.py: cannot be imported: SystemExit"),
        ({"extra": {"bad.py": "def f(:"}}, "bad.py: cannot be imported: SyntaxError"),
    ],
)  # fmt: skip
def test_what_an_author_gets_wrong_is_told_in_a_sentence(tmp_path, options, sentence):
    with pytest.raises(DiscoveryError, match=sentence):
        load_suite(suite(tmp_path, **options))


def test_the_same_axes_may_be_asked_for_with_a_warm_and_a_cold_cache(tmp_path):
    changes = "workloads=(Workload({'n': 1}, device='cuda'), Workload({'n': 1}, device='cuda', cache='cold'))"
    loaded = load_suite(suite(tmp_path, changes=changes, device="cuda"))
    assert [(b.key, b.cache) for b in loaded.workloads("core", "cuda")] == [
        ("k[n=1]", Cache.WARM),
        ("k[n=1]@cold", Cache.COLD),
    ]
    assert loaded.find("k[n=1]@cold").cache is Cache.COLD


def test_a_folder_without_kernels_says_what_to_do(tmp_path):
    with pytest.raises(DiscoveryError, match="holds no implementation: mark one with @implementation"):
        load_suite(tmp_path)
    with pytest.raises(DiscoveryError, match="there is no suite folder"):
        load_suite(tmp_path / "gone")
