// C[m,n] = A[m,k] * W[n,k]^T in half precision with float32 sums on tensor cores through wmma.
// 128 x 128 tile, 32 deep, two buffers; 8 warps, each 64 x 32. Any m, n and k.
#include <cuda_fp16.h>
#include <mma.h>

#define TILE 128
#define DEPTH 32
#define STRIDE (DEPTH + 8)
#define BUFFER (2 * TILE * STRIDE)
#define STAGE 20  // row of the staging tile that turns sums into halves

typedef unsigned short u16;
using namespace nvcuda;

__device__ static void load_tile(const u16* from, u16* to, int first, int rows, int k0, int k) {
  for (int i = threadIdx.x; i < TILE * DEPTH / 8; i += 256) {
    const int r = i / (DEPTH / 8), p = i % (DEPTH / 8) * 8;
    const bool inside = first + r < rows;
    const u16* source = from + (long long)(inside ? first + r : 0) * k + k0 + p;
    if (inside && k % 8 == 0 && k0 + p + 8 <= k) {
      *(uint4*)(to + r * STRIDE + p) = *(const uint4*)source;
    } else {
      for (int q = 0; q < 8; q++) to[r * STRIDE + p + q] = inside && k0 + p + q < k ? source[q] : 0;
    }
  }
}

__device__ static u16 narrow(float value) { return __half_as_ushort(__float2half_rn(value)); }

extern "C" __global__ __launch_bounds__(256) void gemm_wmma_f16(const u16* a, const u16* w, u16* c, int m, int n, int k) {
  __shared__ __align__(128) u16 memory[2 * BUFFER];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, warp = threadIdx.x / 32;
  const int warp_row = warp % 2 * 64, warp_col = warp / 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4][2];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 2; j++) wmma::fill_fragment(sum[i][j], 0.0f);
  load_tile(a, memory, row0, m, 0, k);
  load_tile(w, memory + TILE * STRIDE, col0, n, 0, k);
  __syncthreads();
  for (int k0 = 0, at = 0; k0 < k; k0 += DEPTH, at ^= 1) {
    u16* now = memory + at * BUFFER;
    u16* next = memory + (at ^ 1) * BUFFER;
    if (k0 + DEPTH < k) {
      load_tile(a, next, row0, m, k0 + DEPTH, k);
      load_tile(w, next + TILE * STRIDE, col0, n, k0 + DEPTH, k);
    }
    for (int p = 0; p < DEPTH; p += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[4];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right[2];
      for (int i = 0; i < 4; i++)
        wmma::load_matrix_sync(left[i], (const __half*)now + (warp_row + 16 * i) * STRIDE + p, STRIDE);
      for (int j = 0; j < 2; j++)
        wmma::load_matrix_sync(right[j], (const __half*)now + (TILE + warp_col + 16 * j) * STRIDE + p, STRIDE);
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
    }
    __syncthreads();
  }
  float* stage = (float*)memory + warp * 16 * STAGE;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 2; j++) {
      wmma::store_matrix_sync(stage, sum[i][j], STAGE, wmma::mem_row_major);
      __syncwarp();
      for (int e = threadIdx.x % 32; e < 256; e += 32) {
        const int r = row0 + warp_row + 16 * i + e / 16, q = col0 + warp_col + 16 * j + e % 16;
        if (r < m && q < n) c[(long long)r * n + q] = narrow(stage[e / 16 * STAGE + e % 16]);
      }
      __syncwarp();
    }
}
