"""A small suite with a good kernel, and kernels that try everything the sandbox must survive."""

from textwrap import dedent, indent

_PROBLEM = """
import numpy as np

from runners.api import Problem, Tolerance, Workload


def inputs(axes, rng):
    return {"x": rng.standard_normal(int(axes["n"]), dtype=np.float32)}


SCALE = Problem(
    name="scale",
    family="blas1",
    axes=("n",),
    inputs=inputs,
    reference=lambda values, axes: values["x"] * np.float32(2.0),
    flops=lambda axes: float(axes["n"]),
    bytes=lambda axes, dtype: 8.0 * float(axes["n"]),
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-6, atol=0.0, rel_l2=1e-6),
    workloads=(Workload(axes={"n": 4096}),),
)
"""

_KERNEL = """
import numpy as np

from runners.api import Launch, implementation

from ._problem import SCALE


def misbehave():
{code}


@implementation("{name}", problem=SCALE, device="cpu", dtype="f32")
def prepare(ctx, inputs, axes):
    x = np.array(inputs["x"])
    out = np.zeros_like(x)
    misbehave()

    def load(fresh):
        x[...] = fresh["x"]

    return Launch(run=lambda: np.multiply(x, np.float32(2.0), out=out), output=lambda: out, load=load)
"""

GOOD_SUITE = {"suite/_problem.py": _PROBLEM, "suite/good.py": _KERNEL.format(name="good", code="    pass")}


def hostile_kernel(code: str) -> str:
    """A correct kernel that first does something else."""
    return _KERNEL.format(name="hostile", code=indent(dedent(code).strip(), "    "))


INFINITE_LOOP = "while True: pass"
EIGHT_GIGABYTES = "np.ones(1 << 30, dtype=np.float64)"
ONE_GIGABYTE_OF_OUTPUT = """
import sys
for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
"""
EXIT = """
import os
os._exit(0)
"""
SEGFAULT = """
import ctypes
ctypes.string_at(0)
"""
HARNESS_WRITER = """
import runners.measure.timer
with open(runners.measure.timer.__file__, "a") as file:
    file.write("# quicker now")
"""
HARNESS_REPLACER = """
import os, runners
os.rename(os.path.dirname(runners.__file__), "/tmp/elsewhere")
"""
SOURCE_WRITER = """
import pathlib
pathlib.Path(__file__).write_text("")
"""
PORT_OPENER = """
import socket
socket.create_connection(("127.0.0.1", {port}), timeout=5)
"""
FORK_BOMB = """
import os, time
for _ in range(5000):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
GARBAGE = """
import os
os.write(4, b"how fast? very fast\\n")
"""
FORGED_ANSWER = """
import os
os.write(4, b'{"ok": true, "output_hash": "forged", "facts": {}}\\n')
"""
HUGE_LINE = """
import os
for _ in range(64):
    os.write(4, b"x" * (1 << 20))
"""
NOT_FINITE = """
import os
os.write(4, b'{"ok": true, "output_hash": null, "facts": {"a": NaN}}\\n')
"""
CLOSED_CHANNEL = """
import os, time
os.close(4)
time.sleep(600)
"""
MANY_BIG_PROCESSES = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        block = np.ones(1 << 25, dtype=np.float64)
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
