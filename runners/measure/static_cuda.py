"""The static gate of CUDA kernels: registers, stack, spills, shared memory, occupancy, instructions, code hash.

All of it is deterministic and needs no GPU, so any change is a finding: more spills or stack is a warning, any other
change of machine code says "look here", and equal code on every architecture ends the question. Every target is
looked at, because a change may hide on the one that is not.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from runners.device.cuda.nvrtc import TARGETS, compile_facts, toolchain_version
from runners.errors import BuildError

REGISTERS_PER_SM = 65_536
WARPS_PER_SM = 64
SHARED_BYTES_PER_SM = {"sm_80": 164 << 10, "sm_90a": 228 << 10, "sm_100a": 228 << 10}
SHARED_RESERVED = 1 << 10
THREADS_ASSUMED = 256  # of a block, where the source states no launch bounds
SUMMED = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes", "instructions")
MEMORY_CLASSES = {
    "LDG": "global_load",
    "STG": "global_store",
    "LDS": "shared_load",
    "STS": "shared_store",
    "LDL": "local_load",
    "STL": "local_store",
    "LDSM": "matrix_load",
    "LDGSTS": "async_copy",
    "UTMALDG": "tma_load",
    "UTMASTG": "tma_store",
    "BAR": "barrier",
    "HMMA": "tensor",
    "IMMA": "tensor",
    "QGMMA": "tensor",
    "HGMMA": "tensor",
    "UTCHMMA": "tensor",
    "FFMA": "fma",
    "HFMA2": "fma",
}


class Finding(StrEnum):
    """What a change of machine code asks for."""

    SAME = "same (identical code)"
    LOOK_HERE = "look here"
    WARNING = "warning"  # spills or stack went up


_BOUNDS = re.compile(r"__launch_bounds__\(\s*(\d+)")


def occupancy(*, registers: int, shared_bytes: int, threads: int, arch: str) -> float:
    """Theoretical share of resident warps (CUDA C++ Programming Guide, "Occupancy").

    Registers are given out in units of 256 a warp; the system keeps 1 KiB of shared memory of each block.
    """
    warps = max(1, -(-threads // 32))
    per_warp = -(-max(registers, 1) * 32 // 256) * 256
    by_registers = (REGISTERS_PER_SM // per_warp) // warps
    by_shared = SHARED_BYTES_PER_SM[arch] // (shared_bytes + SHARED_RESERVED)
    blocks = min(by_registers, by_shared, WARPS_PER_SM // warps, 32)
    return blocks * warps / WARPS_PER_SM


def source_facts(source: str, flags: tuple[str, ...] = ()) -> dict[str, float | str]:
    """Flat facts of a source on every architecture, as stored per commit; one hash over all machine code.

    Facts of several kernels in a source are summed (occupancy: the least); an architecture that the source does not
    support says so, and is part of the hash.
    """
    version = toolchain_version()
    facts: dict[str, float | str] = {"toolchain": f"nvrtc {version}"}
    digest = hashlib.sha256(version.encode())
    bounds = _BOUNDS.search(source)
    threads = int(bounds.group(1)) if bounds else THREADS_ASSUMED
    built = 0
    for arch in TARGETS:
        try:
            kernels = compile_facts(source, arch, flags)
        except BuildError as error:
            facts[f"{arch}.error"] = error.reason[-200:]
            digest.update(f"{arch} fails".encode())
            continue
        built += 1
        for name in SUMMED:
            facts[f"{arch}.{name}"] = float(sum(getattr(kernel, name) for kernel in kernels))
        facts[f"{arch}.occupancy"] = min(
            occupancy(registers=k.registers, shared_bytes=k.shared_bytes, threads=threads, arch=arch) for k in kernels
        )
        code = "".join(kernel.code_hash for kernel in kernels)
        facts[f"{arch}.code_hash"] = hashlib.sha256(code.encode()).hexdigest()[:16]
        digest.update(f"{arch} {code}".encode())
    if built:
        facts["code_hash"] = digest.hexdigest()[:20]
    return facts


def classify(base: dict[str, float | str], head: dict[str, float | str], *, arch: str) -> Finding:
    """What the change from base to head means on one architecture."""
    for name in ("stack_bytes", "spill_store_bytes", "spill_load_bytes"):
        before, after = base.get(f"{arch}.{name}"), head.get(f"{arch}.{name}")
        if isinstance(before, float) and isinstance(after, float) and after > before:
            return Finding.WARNING
    same = base.get(f"{arch}.code_hash") == head.get(f"{arch}.code_hash") is not None
    return Finding.SAME if same else Finding.LOOK_HERE


def instruction_mix(cubin: bytes) -> dict[str, int]:
    """Instructions by class, from nvdisasm of the extra `static`; empty where it is not installed."""
    tool = _find_tool("nvidia-cuda-nvdisasm", "nvdisasm")
    if tool is None:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(tool), "-c", file.name], capture_output=True, text=True, timeout=60, check=False)
    mnemonics = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z0-9]+)", done.stdout, re.MULTILINE)
    return dict(Counter(MEMORY_CLASSES.get(mnemonic, "other") for mnemonic in mnemonics))


def _find_tool(package: str, name: str) -> Path | None:
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.name == name), None)
