// silu(gate) * up in bfloat16 of rows that hold the gate columns, then the up columns.
typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ void silu_mul_bf16(const u16* both, u16* out, int rows, int i) {
  const long long count = (long long)rows * i;
  for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (long long)gridDim.x * blockDim.x) {
    const long long row = at / i * 2 * i, col = at % i;
    const float gate = widen(both[row + col]), up = widen(both[row + i + col]);
    out[at] = narrow(gate / (1.0f + __expf(-gate)) * up);
  }
}
