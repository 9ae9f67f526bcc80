// Grouped product: rows start[x] .. start[x+1]-1 of x[rows,k] times w[x] of w[e,k,n], bfloat16 with float32 sums, wmma.
// A block is 64 rows of one expert and 64 columns; blocks beyond an expert's rows leave at once.
#include <cuda_bf16.h>
#include <mma.h>

#define TILE 64
#define DEPTH 32

typedef unsigned short u16;
using namespace nvcuda;

__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ __launch_bounds__(128) void moe_grouped_bf16(const u16* x, const int* start, const u16* w, u16* out, int k, int n) {
  __shared__ __align__(128) u16 left[TILE * (DEPTH + 8)], right[DEPTH * (TILE + 8)];
  __shared__ __align__(128) float stage[4][16 * 20];
  const int expert = blockIdx.z, row0 = start[expert] + blockIdx.y * TILE, end = start[expert + 1], col0 = blockIdx.x * TILE;
  if (row0 >= end) return;
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4];
  for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[j], 0.0f);
  for (int k0 = 0; k0 < k; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
      const int r = i / DEPTH, p = i % DEPTH;
      left[r * (DEPTH + 8) + p] = row0 + r < end && k0 + p < k ? x[(long long)(row0 + r) * k + k0 + p] : 0;
    }
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
      const int p = i / TILE, q = i % TILE;
      right[p * (TILE + 8) + q] = k0 + p < k && col0 + q < n ? w[((long long)expert * k + k0 + p) * n + col0 + q] : 0;
    }
    __syncthreads();
    for (int p = 0; p < DEPTH; p += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
      wmma::load_matrix_sync(a, (const __nv_bfloat16*)left + warp * 16 * (DEPTH + 8) + p, DEPTH + 8);
      for (int j = 0; j < 4; j++) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b;
        wmma::load_matrix_sync(b, (const __nv_bfloat16*)right + p * (TILE + 8) + j * 16, TILE + 8);
        wmma::mma_sync(sum[j], a, b, sum[j]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; j++) {
    wmma::store_matrix_sync(stage[warp], sum[j], 20, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 256; i += 32) {
      const int r = row0 + warp * 16 + i / 16, q = col0 + j * 16 + i % 16;
      if (r < end && q < n) out[(long long)r * n + q] = narrow(stage[warp][i / 16 * 20 + i % 16]);
    }
    __syncwarp();
  }
}
