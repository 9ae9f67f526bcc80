"""The static gate of CUDA kernels: registers, stack, spills, shared memory, occupancy, instructions, code hash.

All of it is deterministic and needs no GPU, so any change is a finding (`service.contract.static_finding`): more spills
or stack is a warning, any other change says "look here", and equal code on every architecture ends the question. Every
target is looked at, because a change may hide on the one that is not.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from importlib import metadata
from pathlib import Path

from runners.device.cuda.nvrtc import TARGETS, KernelFacts, compile_cubin, describe, toolchain_version
from runners.errors import BuildError
from runners.measure.static import read_sections

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

READ_BESIDE_CODE = (".nv.constant2", ".nv.constant3", ".nv.global.init", ".rodata")  # tables, not names or sizes
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
            cubin, log = compile_cubin(source, arch, flags)
            kernels = describe(cubin, log, arch)
        except BuildError as error:
            facts[f"{arch}.error"] = error.reason[-200:]
            digest.update(f"{arch} fails".encode())
            continue
        built += 1
        here = _target_facts(kernels, cubin, threads=threads, arch=arch)
        facts |= {f"{arch}.{name}": value for name, value in here.items()}
        digest.update(f"{arch} {here['code_hash']}".encode())
    if built:
        facts["code_hash"] = digest.hexdigest()[:20]
    return facts


def _target_facts(kernels: tuple[KernelFacts, ...], cubin: bytes, *, threads: int, arch: str) -> dict[str, float | str]:
    facts: dict[str, float | str] = {name: float(sum(getattr(kernel, name) for kernel in kernels)) for name in SUMMED}
    facts["occupancy"] = min(
        (occupancy(registers=k.registers, shared_bytes=k.shared_bytes, threads=threads, arch=arch) for k in kernels),
        default=0.0,
    )
    facts |= {f"sass.{name}": float(count) for name, count in sorted(instruction_mix(cubin).items())}
    digest = hashlib.sha256("".join(kernel.code_hash for kernel in kernels).encode())
    for section in read_sections(cubin):
        if section.name.startswith(READ_BESIDE_CODE):
            digest.update(section.data)
    facts["code_hash"] = digest.hexdigest()[:16]
    return facts


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
