"""A kernel that takes a millisecond and is `slow_pct` slower than that: the step that a comparison must see."""

SOURCE = r"""
extern "C" __global__ void spin(float* out, int rounds) {
    float x = threadIdx.x, y = 1.0f + blockIdx.x;
    for (int i = 0; i < rounds; ++i) x = x * 0.999f + y;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
"""
ROUNDS = 300_000


def make(kernel, slow_pct):
    import cupy

    out = cupy.empty(64 * 128, cupy.float32)
    spin = cupy.RawKernel(SOURCE, kernel)
    rounds = cupy.int32(round(ROUNDS * (1 + slow_pct / 100)))
    return lambda: spin((64,), (128,), (out, rounds))
