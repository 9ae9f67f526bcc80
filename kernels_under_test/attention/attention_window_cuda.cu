// Causal attention over a sliding window with a sink for each head, bfloat16 on tensor cores through wmma: 32 queries and 32
// keys at a time; keys outside the windows of all queries of a block are never read. d is a multiple of 16 up to 128.
#include <cuda_bf16.h>
#include <mma.h>

#define ROWS 32
#define DMAX 128
#define STRIDE (DMAX + 8)
#define SSTRIDE 36
#define PSTRIDE 40
#define OSTRIDE (DMAX + 4)

typedef unsigned short u16;
using namespace nvcuda;

__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ static void load_rows(const u16* from, u16* to, int first, int rows, int d) {
  for (int i = threadIdx.x; i < ROWS * d; i += 128) {
    const int r = i / d, p = i % d;
    to[r * STRIDE + p] = first + r < rows ? from[(long long)(first + r) * d + p] : 0;
  }
}

extern "C" __global__ __launch_bounds__(128) void attention_window_bf16(const u16* q, const u16* k, const u16* v, const float* sinks, u16* o, int hq, int hkv,
                                                                      int sq, int skv, int d, int window, float scale) {
  __shared__ __align__(128) u16 query[ROWS * STRIDE], other[ROWS * STRIDE], weights[ROWS * PSTRIDE];
  __shared__ __align__(128) float scores[ROWS * SSTRIDE], sums[ROWS * OSTRIDE];
  __shared__ float top[ROWS], total[ROWS], shrink[ROWS];
  const int q0 = blockIdx.x * ROWS, head = blockIdx.y, batch = blockIdx.z, warp = threadIdx.x / 32;
  const long long queries = ((long long)batch * hq + head) * sq * d, keys = ((long long)batch * hkv + head * hkv / hq) * skv * d;
  load_rows(q + queries, query, q0, sq, d);
  for (int i = threadIdx.x; i < ROWS * OSTRIDE; i += 128) sums[i] = 0.0f;
  if (threadIdx.x < ROWS) top[threadIdx.x] = sinks[head] * 1.44269504f, total[threadIdx.x] = 1.0f;
  const int position = skv - sq + q0, seen = position + ROWS < skv ? position + ROWS : skv;
  const int start = position - window + 1 > 0 ? (position - window + 1) / ROWS * ROWS : 0;
  for (int k0 = start; k0 < seen; k0 += ROWS) {
    __syncthreads();
    load_rows(k + keys, other, k0, skv, d);
    __syncthreads();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> score;
    wmma::fill_fragment(score, 0.0f);
    for (int p = 0; p < d; p += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
      wmma::load_matrix_sync(left, (const __nv_bfloat16*)query + warp / 2 * 16 * STRIDE + p, STRIDE);
      wmma::load_matrix_sync(right, (const __nv_bfloat16*)other + warp % 2 * 16 * STRIDE + p, STRIDE);
      wmma::mma_sync(score, left, right, score);
    }
    wmma::store_matrix_sync(scores + warp / 2 * 16 * SSTRIDE + warp % 2 * 16, score, SSTRIDE, wmma::mem_row_major);
    __syncthreads();
    load_rows(v + keys, other, k0, skv, d);
    if (threadIdx.x < ROWS) {
      const int row = threadIdx.x, end = position + row + 1, limit = end < skv ? end : skv;
      float peak = top[row], sum = 0.0f;
      for (int j = 0; j < ROWS; j++)
        if (k0 + j < limit && k0 + j >= end - window) peak = fmaxf(peak, scores[row * SSTRIDE + j] * scale);
      for (int j = 0; j < ROWS; j++) {
        const float weight = k0 + j < limit && k0 + j >= end - window ? exp2f(scores[row * SSTRIDE + j] * scale - peak) : 0.0f;
        sum += weight;
        weights[row * PSTRIDE + j] = narrow(weight);
      }
      shrink[row] = exp2f(top[row] - peak);
      total[row] = total[row] * shrink[row] + sum;
      top[row] = peak;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * d; i += 128) sums[i / d * OSTRIDE + i % d] *= shrink[i / d];
    __syncthreads();
    for (int tile = warp; tile < 2 * (d / 16); tile += 4) {
      float* at = sums + tile % 2 * 16 * OSTRIDE + tile / 2 * 16;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      wmma::load_matrix_sync(sum, at, OSTRIDE, wmma::mem_row_major);
      for (int p = 0; p < ROWS; p += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right;
        wmma::load_matrix_sync(left, (const __nv_bfloat16*)weights + tile % 2 * 16 * PSTRIDE + p, PSTRIDE);
        wmma::load_matrix_sync(right, (const __nv_bfloat16*)other + p * STRIDE + tile / 2 * 16, STRIDE);
        wmma::mma_sync(sum, left, right, sum);
      }
      wmma::store_matrix_sync(at, sum, OSTRIDE, wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * d; i += 128) {
    const int row = i / d, p = i % d;
    if (q0 + row < sq) o[queries + (long long)(q0 + row) * d + p] = narrow(sums[row * OSTRIDE + p] / total[row]);
  }
}
