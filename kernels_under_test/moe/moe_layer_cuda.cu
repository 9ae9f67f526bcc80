// The products of a mixture-of-experts layer, bfloat16 with float32 sums, wmma, fused with what stands beside them: the
// first gathers its rows through `order` and applies silu(gate) * up, the second scatters its rows to (token, slot),
// the third sums the slots of a token. A block of a product is 64 rows of one expert and 64 columns.
#include <cuda_bf16.h>
#include <mma.h>

#define TILE 64
#define DEPTH 32
#define LEFT (DEPTH + 8)
#define RIGHT (TILE + 8)
#define STAGE 20  // row of the staging tile that turns sums into bfloat16

typedef unsigned short u16;
using namespace nvcuda;
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> Sum;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// 32 x 64 of a matrix with `stride` columns, of which `cols` count.
__device__ static void load_weights(const u16* w, u16* to, int k0, int k, int col0, int cols, int stride) {
  for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
    const int p = i / TILE, q = i % TILE;
    to[p * RIGHT + q] = k0 + p < k && col0 + q < cols ? w[(long long)(k0 + p) * stride + col0 + q] : 0;
  }
}

__device__ static void multiply(const u16* left, const u16* right, Sum* sum) {
  for (int p = 0; p < DEPTH; p += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
    wmma::load_matrix_sync(a, (const __nv_bfloat16*)left + threadIdx.x / 32 * 16 * LEFT + p, LEFT);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b;
      wmma::load_matrix_sync(b, (const __nv_bfloat16*)right + p * RIGHT + j * 16, RIGHT);
      wmma::mma_sync(sum[j], a, b, sum[j]);
    }
  }
}

extern "C" __global__ __launch_bounds__(128) void moe_layer_up_bf16(const u16* x, const int* order, const int* start, const u16* w, u16* out, int topk, int h, int wide) {
  __shared__ __align__(128) u16 left[TILE * LEFT], gates[DEPTH * RIGHT], ups[DEPTH * RIGHT];
  __shared__ __align__(128) float stage[4][2][16 * STAGE];
  const int expert = blockIdx.z, row0 = start[expert] + blockIdx.y * TILE, end = start[expert + 1], col0 = blockIdx.x * TILE;
  if (row0 >= end) return;
  const int warp = threadIdx.x / 32;
  const u16* weights = w + (long long)expert * h * 2 * wide;
  Sum gate[4], up[4];
#pragma unroll
  for (int j = 0; j < 4; j++) wmma::fill_fragment(gate[j], 0.0f), wmma::fill_fragment(up[j], 0.0f);
  for (int k0 = 0; k0 < h; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
      const int r = i / DEPTH, p = i % DEPTH;
      left[r * LEFT + p] = row0 + r < end && k0 + p < h ? x[(long long)(order[row0 + r] / topk) * h + k0 + p] : 0;
    }
    load_weights(weights, gates, k0, h, col0, wide, 2 * wide);
    load_weights(weights + wide, ups, k0, h, col0, wide, 2 * wide);
    __syncthreads();
    multiply(left, gates, gate);
    multiply(left, ups, up);
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    wmma::store_matrix_sync(stage[warp][0], gate[j], STAGE, wmma::mem_row_major);
    wmma::store_matrix_sync(stage[warp][1], up[j], STAGE, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 256; i += 32) {
      const int r = row0 + warp * 16 + i / 16, q = col0 + j * 16 + i % 16, at = i / 16 * STAGE + i % 16;
      const float value = stage[warp][0][at];
      if (r < end && q < wide) out[(long long)r * wide + q] = narrow(value / (1.0f + __expf(-value)) * stage[warp][1][at]);
    }
    __syncwarp();
  }
}

extern "C" __global__ __launch_bounds__(128) void moe_layer_down_bf16(const u16* rows, const int* order, const int* start, const u16* w, u16* out, int wide, int h) {
  __shared__ __align__(128) u16 left[TILE * LEFT], right[DEPTH * RIGHT];
  __shared__ __align__(128) float stage[4][16 * STAGE];
  const int expert = blockIdx.z, row0 = start[expert] + blockIdx.y * TILE, end = start[expert + 1], col0 = blockIdx.x * TILE;
  if (row0 >= end) return;
  const int warp = threadIdx.x / 32;
  Sum sum[4];
#pragma unroll
  for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[j], 0.0f);
  for (int k0 = 0; k0 < wide; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
      const int r = i / DEPTH, p = i % DEPTH;
      left[r * LEFT + p] = row0 + r < end && k0 + p < wide ? rows[(long long)(row0 + r) * wide + k0 + p] : 0;
    }
    load_weights(w + (long long)expert * wide * h, right, k0, wide, col0, h, h);
    __syncthreads();
    multiply(left, right, sum);
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    wmma::store_matrix_sync(stage[warp], sum[j], STAGE, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 256; i += 32) {
      const int r = row0 + warp * 16 + i / 16, q = col0 + j * 16 + i % 16;
      if (r < end && q < h) out[(long long)order[r] * h + q] = narrow(stage[warp][i / 16 * STAGE + i % 16]);
    }
    __syncwarp();
  }
}

extern "C" __global__ void moe_layer_sum_bf16(const u16* rows, const float* weights, u16* out, int topk, int h) {
  const long long token = blockIdx.x;
  for (int j = threadIdx.x; j < h; j += blockDim.x) {
    float sum = 0.0f;
    for (int slot = 0; slot < topk; slot++) sum += weights[token * topk + slot] * widen(rows[(token * topk + slot) * h + j]);
    out[token * h + j] = narrow(sum);
  }
}
