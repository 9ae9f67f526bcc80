// C[b] = A[b] W[b]^T, many small products in bfloat16 with float32 sums on tensor cores through wmma.
// A block is 64 x 64 of one product, 32 deep; 4 warps, each 16 x 64. Any m, n and k.
#include <cuda_bf16.h>
#include <mma.h>

#define TILE 64
#define DEPTH 32
#define STRIDE (DEPTH + 8)
#define STAGE 20  // row of the staging tile that turns sums into bfloat16

typedef unsigned short u16;
using namespace nvcuda;

__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ static void load_tile(const u16* from, u16* to, int first, int rows, int k0, int k) {
  for (int i = threadIdx.x; i < TILE * DEPTH / 8; i += 128) {
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

extern "C" __global__ __launch_bounds__(128) void gemm_batched_bf16(const u16* a, const u16* w, u16* c, int m, int n, int k) {
  __shared__ __align__(128) u16 left[TILE * STRIDE], right[TILE * STRIDE];
  __shared__ __align__(128) float stage[4][16 * STAGE];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, warp = threadIdx.x / 32;
  a += (long long)blockIdx.z * m * k;
  w += (long long)blockIdx.z * n * k;
  c += (long long)blockIdx.z * m * n;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4];
  for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[j], 0.0f);
  for (int k0 = 0; k0 < k; k0 += DEPTH) {
    load_tile(a, left, row0, m, k0, k);
    load_tile(w, right, col0, n, k0, k);
    __syncthreads();
    for (int p = 0; p < DEPTH; p += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> rows;
      wmma::load_matrix_sync(rows, (const __nv_bfloat16*)left + warp * 16 * STRIDE + p, STRIDE);
      for (int j = 0; j < 4; j++) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> columns;
        wmma::load_matrix_sync(columns, (const __nv_bfloat16*)right + j * 16 * STRIDE + p, STRIDE);
        wmma::mma_sync(sum[j], rows, columns, sum[j]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; j++) {
    wmma::store_matrix_sync(stage[warp], sum[j], STAGE, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 256; i += 32) {
      const int r = row0 + warp * 16 + i / 16, q = col0 + j * 16 + i % 16;
      if (r < m && q < n) c[(long long)r * n + q] = narrow(stage[warp][i / 16 * STAGE + i % 16]);
    }
    __syncwarp();
  }
}
