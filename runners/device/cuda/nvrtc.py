"""Compile CUDA sources without a GPU and read static facts from the machine code.

NVRTC and the headers come from wheels (the extra `static`). Facts are registers, stack, spills and shared memory, as
ptxas reports them, and a hash of the instructions: of the `.text` sections only, since the bytes of the file change
with options and names. Stack is listed beside spills because a dynamically indexed array goes to the stack without
counting as a spill.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import struct
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from runners.errors import BuildError, DeviceError

TARGETS = ("sm_80", "sm_90a", "sm_100a")
INSTRUCTION_BYTES = 16
PROGRAM_NAME = "kernel.cu"  # constant: the name of the program changes the bytes
_USED = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """What ptxas says of one kernel for one target."""

    kernel: str
    target: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    instructions: int
    code_hash: str


def unavailable() -> str | None:
    """Why nothing can be compiled here, or None."""
    if importlib.util.find_spec("cupy") is None or _include_dir() is None:
        return "NVRTC is not installed (pip install 'kernelwatch[static]')"
    return None


def compile_facts(source: str, target: str, flags: tuple[str, ...] = ()) -> tuple[KernelFacts, ...]:
    """Compile `source` for `target` (such as sm_90a) and describe its kernels, in order; BuildError with the log."""
    cubin, log = compile_cubin(source, target, flags)
    return describe(cubin, log, target)


def compile_cubin(source: str, target: str, flags: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """The machine code of `source` for `target` and the compiler's log; BuildError with the log."""
    from cupy.cuda import nvrtc

    includes = include_options()
    if not includes:
        raise DeviceError("the CUDA headers are not installed (pip install 'kernelwatch[static]')")
    options = [f"--gpu-architecture={target}", "-std=c++17", *includes]
    program = nvrtc.createProgram(source, PROGRAM_NAME, (), ())
    try:
        nvrtc.compileProgram(program, (*options, "--ptxas-options=-v", *flags))
        # The binding drops the last byte, without which nvdisasm refuses the file.
        return nvrtc.getCUBIN(program) + b"\0", nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise BuildError(f"NVRTC for {target}: {log.strip()[-3000:] or error}", log_tail=log[-4000:]) from error
    finally:
        nvrtc.destroyProgram(program)


def describe(cubin: bytes, log: str, target: str) -> tuple[KernelFacts, ...]:
    """Facts of each kernel from its cubin and the log of ptxas."""
    texts = text_sections(cubin)
    found = []
    for match in _USED.finditer(log):
        shared = _SHARED.search(match["rest"])
        code = texts.get(f".text.{match['kernel']}", b"")
        found.append(
            KernelFacts(
                kernel=match["kernel"],
                target=target,
                registers=int(match["registers"]),
                stack_bytes=int(match["stack"]),
                spill_store_bytes=int(match["stores"]),
                spill_load_bytes=int(match["loads"]),
                shared_bytes=int(shared.group(1)) if shared else 0,
                instructions=len(code) // INSTRUCTION_BYTES,
                code_hash=hashlib.sha256(code).hexdigest()[:16],
            )
        )
    return tuple(found)


def text_sections(elf: bytes) -> dict[str, bytes]:
    """The `.text*` sections of a 64-bit ELF file by name (layout: ELF-64 object file format, version 1.5)."""
    if elf[:4] != b"\x7fELF" or elf[4] != 2:
        raise BuildError("the compiler's output is not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    names = sections[names_at][4]
    found = {}
    for name_offset, _, _, _, offset, length in sections:
        name = elf[names + name_offset : elf.index(b"\0", names + name_offset)].decode()
        if name.startswith(".text"):
            found[name] = elf[offset : offset + length]
    return found


def toolchain_version() -> str:
    """The version of the installed NVRTC: it decides registers and code as much as the source does."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return "of the system"


def include_options() -> tuple[str, ...]:
    """Compiler options for the headers of the wheels; empty when they are not installed."""
    include = _include_dir()
    return () if include is None else (f"-I{include}", f"-I{include / 'cccl'}")


def _include_dir() -> Path | None:
    """The headers that the `nvidia-cuda-*` wheels bring, of the newest major version."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    candidates = [path for root in roots for path in Path(root).glob("cu*/include") if (path / "mma.h").is_file()]
    return max(candidates, default=None, key=lambda path: path.parent.name)
