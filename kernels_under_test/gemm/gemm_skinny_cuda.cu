// C[m,n] = A[m,k] * W[n,k]^T in bfloat16 for m <= 16: one warp for each row of W, bound by reading W once.
#define ROWS 16

typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ __launch_bounds__(128) void gemm_skinny_bf16(const u16* a, const u16* w, u16* c, int m, int n, int k) {
  const int col = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (col >= n) return;
  const u16* row = w + (long long)col * k;
  float sum[ROWS] = {};
  const int whole = k % 8 == 0 ? k : 0;
  for (int p = lane * 8; p < whole; p += 256) {
    const uint4 eight = *(const uint4*)(row + p);
    const u16* weights = (const u16*)&eight;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
      if (i < m) {
        const uint4 values = *(const uint4*)(a + (long long)i * k + p);
        for (int q = 0; q < 8; q++) sum[i] += widen(((const u16*)&values)[q]) * widen(weights[q]);
      }
  }
  for (int p = whole + lane; p < k; p += 32)
#pragma unroll
    for (int i = 0; i < ROWS; i++)
      if (i < m) sum[i] += widen(a[(long long)i * k + p]) * widen(row[p]);
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    if (i >= m) break;
    for (int step = 16; step > 0; step /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
    if (lane == 0) c[(long long)i * n + col] = narrow(sum[i]);
  }
}
