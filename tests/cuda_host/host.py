"""A stand-in for CuPy and for the harness's context: CUDA sources are compiled for the host and really run."""

import ctypes
import functools
import hashlib
import re
import subprocess
import types
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{HERE}", "-include", str(HERE / "shim.h"))
DYNAMIC_SHARED = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];")
KERNEL = re.compile(r'extern "C" __global__(?: __launch_bounds__\([^)]*\))? void (\w+)\(')


def fake_cupy():
    """NumPy under CuPy's name; arrays gain the two methods that helpers use."""
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            nvrtc=types.SimpleNamespace(getSupportedArchs=lambda: (80, 90)),
            Device=lambda: types.SimpleNamespace(compute_capability="90"),
        ),
        asarray=lambda value: np.array(value).view(HostArray),
        empty=lambda shape, dtype: np.full(shape, _poison(dtype), dtype).view(HostArray),
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(HostArray),
    )


def _poison(dtype):
    return np.nan if np.dtype(dtype).kind == "f" else 0x7F


class HostArray(np.ndarray):
    """A device array of the stand-in."""

    def get(self):
        return np.array(self)

    def set(self, value):
        self[...] = value


class HostContext:
    """What `prepare` is given: `module()` compiles the implementation's sources for the host."""

    threads = 1

    def __init__(self, source_dir, sources, build_dir):
        self.source_dir, self._sources, self._build_dir = source_dir, sources, build_dir

    def module(self):
        return HostModule("\n".join((self.source_dir / name).read_text() for name in self._sources), self._build_dir)


class HostModule:
    """The kernels of a source, as functions of (grid, block, arguments)."""

    def __init__(self, code, build_dir):
        self.kernels = KERNEL.findall(code)
        launchers = "".join(
            f'extern "C" void launch_{name}(const unsigned* grid, unsigned threads, void** arguments)'
            f" {{ host::launch({name}, grid, threads, arguments); }}\n"
            for name in self.kernels
        )
        code = DYNAMIC_SHARED.sub(r"unsigned char* \1 = host::dynamic_shared;", code) + "\n" + launchers
        shim = "".join(path.read_text() for path in sorted(HERE.glob("*.h")))
        library = build_dir / f"host-{hashlib.sha256((shim + code).encode()).hexdigest()[:16]}.so"
        if not library.exists():
            source = library.with_suffix(".cc")
            source.write_text(code)
            subprocess.run(["g++", *FLAGS, "-o", str(library), str(source)], check=True)
        self._library = ctypes.CDLL(str(library))

    def get_function(self, name):
        return functools.partial(_launch, getattr(self._library, f"launch_{name}"))


def _launch(function, grid, block, arguments, shared_mem=0):
    cells = [_cell(value) for value in arguments]
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
    sizes = (ctypes.c_uint * 3)(*(*grid, 1, 1)[:3])
    function(sizes, block[0], pointers)


def _cell(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_float(value) if isinstance(value, np.floating) else ctypes.c_int(value)
