"""What the built history is made of: shapes with their planted levels, subjects, authors, and which commits matter."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

NOW = datetime(2030, 3, 4, 8, 0, tzinfo=UTC)
FLAGGED = "contended"
HOSTILE_SUBJECT = "Größe & </script><script>alert('x')</script> \u202e tile"

SUBJECTS = (
    "Start the suite", "Keep the accumulator tile in registers", "Describe the layouts", "Rename pack_a to pack_lhs",
    "Unroll the k loop by four", "Merge branch 'docs'", "Split the epilogue", "Prefetch the next B panel",
    "Clarify the tolerance", HOSTILE_SUBJECT, "Fuse the mask into the softmax", "Use one pass for the row maximum",
    "Tidy includes", "Sort tokens by expert before the GEMM", "Read K in 64-byte rows", "Name the tile constants",
    "Document the benchmark axes", "Drop an unused helper", "Align the scratch buffer to 64 bytes", "Move pack_rhs",
    "Try a wider store", "Fix the build", "Refactor the loop bounds", "Add a note on denormals", "Rename Mc to MC",
    "Hoist the scale out of the loop", "Update the README", "Use a 4-row register tile for ragged edges",
    "Comment on the edge case", "Format", "Merge branch 'edges'", "Shorten the names", "Count experts once",
    "Gather expert rows through an index", "Explain the index", "Remove a stale comment", "Bump the copyright year",
    "Guard against empty experts", "Reuse the packed panel", "Mention the ragged case in the docs",
)  # fmt: skip
AUTHORS = (("Ada Krüger", "ada@example.org"), ("Wen Li", "wen@example.org"), ("Sam O'Neil", "sam@example.org"))

GEMM_STEP, ATTENTION_STEP, MOE_STEP = 27, 14, 33
BROKEN_BUILD, WRONG_RESULT = 20, 9
STEP = 1 / 0.86 - 1  # the rate falls by 14 %


@dataclass(frozen=True)
class Shape:
    benchmark: str
    family: str
    problem: str
    axes: dict[str, int]
    base_s: float
    flops: float
    bytes: float
    noise: float = 0.004
    control: bool = False


def gemm(m: int, n: int, k: int, *, base_s: float, name: str = "gemm_f32", control: bool = False) -> Shape:
    work, moved = 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n)
    return Shape(name, "gemm", "gemm", {"m": m, "n": n, "k": k}, base_s, work, moved, 0.004, control)


SHAPES = (
    gemm(512, 512, 512, base_s=2.61e-3),
    gemm(1024, 1024, 1024, base_s=20.4e-3),
    gemm(64, 4096, 1024, base_s=5.9e-3),
    gemm(1000, 1000, 1000, base_s=19.8e-3),
    gemm(512, 512, 512, base_s=2.48e-3, name="gemm_openblas", control=True),
    gemm(1024, 1024, 1024, base_s=19.3e-3, name="gemm_openblas", control=True),
    Shape("flash_attention", "attention", "attention", {"heads": 8, "seq": 256, "dim": 64}, 3.3e-3, 2.7e8, 1.6e6),
    Shape("flash_attention", "attention", "attention", {"heads": 8, "seq": 1024, "dim": 64}, 51e-3, 4.3e9, 6.3e6),
    Shape("flash_attention", "attention", "attention", {"heads": 4, "seq": 2048, "dim": 128}, 204e-3, 1.7e10, 1e7),
    Shape("moe_grouped", "moe", "moe", {"experts": 8, "tokens": 256, "hidden": 512}, 9.1e-3, 5.4e8, 9e6),
    Shape("moe_grouped", "moe", "moe", {"experts": 16, "tokens": 64, "hidden": 512}, 2.4e-3, 1.3e8, 1.7e7),
    Shape("moe_grouped", "moe", "moe", {"experts": 64, "tokens": 17, "hidden": 256}, 640e-6, 9e6, 1.7e7, 0.06),
)  # fmt: skip


def sha_of(position: int, salt: str = "demo") -> str:
    return hashlib.sha1(f"{salt}:{position}".encode()).hexdigest()


def level(shape: Shape, position: int) -> float:
    """The planted level of a shape at a commit."""
    value = shape.base_s
    if shape.benchmark == "gemm_f32" and position >= GEMM_STEP:
        value *= 1 + STEP
    if shape.benchmark == "flash_attention" and position >= ATTENTION_STEP:
        value *= 0.89
    if shape.benchmark == "moe_grouped" and position >= MOE_STEP:
        value *= 1.31
    return value
