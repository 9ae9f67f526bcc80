"""The Triton kernel of `gemm_bf16_triton.py`; apart, because Triton reads the names of a kernel from its module."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def gemm(a, w, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr) -> None:  # noqa: ANN001
    """One tile of C[m,n] = A[m,k] W[n,k]^T; the edges are masked."""
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    cols = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    sums = tl.zeros((tile_m, tile_n), tl.float32)
    for first in range(0, k, tile_k):
        depth = first + tl.arange(0, tile_k)
        left = tl.load(a + rows[:, None] * k + depth, (rows[:, None] < m) & (depth < k), other=0.0)
        right = tl.load(w + cols[:, None] * k + depth, (cols[:, None] < n) & (depth < k), other=0.0)
        sums = tl.dot(left, tl.trans(right), sums)
    inside = (rows[:, None] < m) & (cols < n)
    tl.store(c + rows[:, None] * n + cols, sums.to(c.dtype.element_ty), inside)
