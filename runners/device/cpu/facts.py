"""Facts of a CPU host for the environment fingerprint; what cannot be read is "unavailable", never assumed."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

UNAVAILABLE = "unavailable"

# A change in one of these makes times incomparable; the other facts are kept as evidence only.
COMPARABLE_FACTS = (
    "blas",
    "cache_policy",
    "canary_reference_s",
    "compiler",
    "cpu_model",
    "governor",
    "hypervisor",
    "kernel",
    "libc",
    "microcode",
    "numpy",
    "python",
    "smt",
    "timing_method",
    "turbo",
)


def read_text(path: Path) -> str:
    """The stripped content of a small system file, or "unavailable"."""
    try:
        return path.read_text(errors="replace").strip() or UNAVAILABLE
    except OSError:
        return UNAVAILABLE


def cpuinfo_facts(text: str) -> dict[str, str]:
    """Model, microcode, instruction sets and count from /proc/cpuinfo (x86 and Arm spell them differently)."""
    fields: dict[str, str] = {}
    processors = 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        processors += name.strip() == "processor"
        fields.setdefault(name.strip(), value.strip())
    wanted = {"avx", "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "fma", "asimd", "sve", "sve2"}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    family = "-".join(fields[k] for k in ("cpu family", "model", "stepping") if k in fields)
    return {
        "cpu_model": " ".join(
            p for p in (fields.get("model name") or fields.get("CPU part", platform.machine()), family) if p
        ),
        "microcode": fields.get("microcode", UNAVAILABLE),
        "isa": " ".join(sorted(flags & wanted)) or UNAVAILABLE,
        "hypervisor": "yes" if "hypervisor" in flags else "none seen",
        "processors": str(processors),
    }


def host_facts(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> dict[str, str]:
    """Everything about the host that may move a time."""
    cpu = sysfs / "devices/system/cpu"
    facts = cpuinfo_facts(read_text(procfs / "cpuinfo"))
    facts |= {
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()) or UNAVAILABLE,
        "python": platform.python_version(),
        "governor": read_text(cpu / "cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(cpu),
        "smt": read_text(cpu / "smt/control"),
        "isolated_cpus": read_text(cpu / "isolated"),
        "l2_size": read_text(cpu / "cpu0/cache/index2/size"),
        "memory": read_text(procfs / "meminfo").splitlines()[0].partition(":")[2].strip() or UNAVAILABLE,
        "hugepages": read_text(sysfs / "kernel/mm/transparent_hugepage/enabled"),
        "host": platform.node(),
        "compiler": compiler_version(os.environ.get("CC") or "gcc"),
        "numpy": metadata.version("numpy"),
        "blas": _blas_library(),
    }
    return facts


def compiler_version(compiler: str) -> str:
    """First line of the compiler's own version text."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return UNAVAILABLE
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else UNAVAILABLE


def _turbo(cpu: Path) -> str:
    no_turbo, boost = read_text(cpu / "intel_pstate/no_turbo"), read_text(cpu / "cpufreq/boost")
    if no_turbo != UNAVAILABLE:
        return "off" if no_turbo == "1" else "on"
    return {"1": "on", "0": "off"}.get(boost, UNAVAILABLE)


def _blas_library() -> str:
    """The BLAS shipped in the NumPy wheel, by its file name (it carries the version), without importing NumPy."""
    for path in metadata.files("numpy") or ():
        if "openblas" in path.name or "mkl" in path.name:
            return path.name
    return UNAVAILABLE
