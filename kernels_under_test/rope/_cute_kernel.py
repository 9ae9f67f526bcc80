"""The CuTe DSL kernel of `rope_f32_cute.py`; apart, because the DSL rewrites the source of its functions."""

# mypy: disable-error-code="untyped-decorator"

from cutlass import cute

THREADS = 256


@cute.kernel
def rotate(x: cute.Tensor, cosine: cute.Tensor, sine: cute.Tensor, out: cute.Tensor) -> None:
    """One thread for each pair of values that rotate against each other."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tokens, heads, d = x.shape
    half = d // 2
    at = block * THREADS + thread
    if at < tokens * heads * half:
        token, head, j = at // (heads * half), at // half % heads, at % half
        left, right = x[token, head, j], x[token, head, j + half]
        out[token, head, j] = left * cosine[token, j] - right * sine[token, j]
        out[token, head, j + half] = right * cosine[token, j] + left * sine[token, j]


@cute.jit
def rope(x: cute.Tensor, cosine: cute.Tensor, sine: cute.Tensor, out: cute.Tensor) -> None:
    """Launch over all pairs; the shapes are static, so the grid is too."""
    tokens, heads, d = x.shape
    pairs = tokens * heads * (d // 2)
    rotate(x, cosine, sine, out).launch(grid=((pairs + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1))
