// Flash attention in bfloat16 with mma.sync m16n8k16: 64 queries (4 warps of 16 rows) against 64 keys at a time; scores,
// weights and sums stay in registers. q[b,hq,sq,d], k and v[b,hkv,skv,d], d 64 or 128; causal query i sees keys to skv - sq + i.
typedef unsigned int u32;
typedef unsigned short u16;

#define ROWS 64
#define KEYS 64

#ifndef KERNELWATCH_HOST
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void load_8x8_x4(u32* r, u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}
__device__ __forceinline__ void load_8x8_x4_transposed(u32* r, u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}
__device__ __forceinline__ void multiply_add(float* c, const u32* a, const u32* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ __forceinline__ u32 narrow(float value) {
  const u32 bits = __float_as_uint(value);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
__device__ __forceinline__ u32 pair(float low, float high) { return narrow(low) | narrow(high) << 16; }

template <int D>
__device__ __forceinline__ void load_rows(const u16* from, u16 (*to)[D + 8], int first, int rows) {
  for (int i = threadIdx.x; i < ROWS * D / 8; i += 128) {
    const int r = i / (D / 8), p = i % (D / 8) * 8;
    const uint4 zero = {0, 0, 0, 0};
    *(uint4*)&to[r][p] = first + r < rows ? *(const uint4*)(from + (long long)(first + r) * D + p) : zero;
  }
}

// Softmax of the scores of one of a thread's two rows, in place; returns by how much everything gathered so far shrinks.
__device__ __forceinline__ float soften(float (*scores)[4], int half, int left, float scale, float* top, float* total) {
  float peak = *top, sum = 0.0f;
#pragma unroll
  for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float* s = &scores[j][2 * half + e];
      *s = j * 8 + e < left ? *s * scale : -3.0e38f;
      peak = fmaxf(peak, *s);
    }
  peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
  peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
#pragma unroll
  for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float* s = &scores[j][2 * half + e];
      *s = j * 8 + e < left ? exp2f(*s - peak) : 0.0f;
      sum += *s;
    }
  const float shrink = exp2f(*top - peak);
  *total = *total * shrink + sum;
  *top = peak;
  return shrink;
}

template <int D>
__device__ __forceinline__ void attend(const u16* q, const u16* k, const u16* v, u16* o, int hq, int hkv, int sq, int skv, int causal,
                                       float scale) {
  __shared__ __align__(128) u16 keys[KEYS][D + 8], values[KEYS][D + 8];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, q0 = blockIdx.x * ROWS, head = blockIdx.y, batch = blockIdx.z;
  const long long queries = ((long long)batch * hq + head) * sq * D, base = ((long long)batch * hkv + head * hkv / hq) * skv * D;
  const int row = q0 + warp * 16 + (lane >> 2);
  load_rows<D>(q + queries, keys, q0, sq);
  __syncthreads();
  u32 query[D / 16][4];
#pragma unroll
  for (int p = 0; p < D / 16; p++)
    load_8x8_x4(query[p], shared_address(&keys[warp * 16 + (lane & 15)][p * 16 + (lane >> 4) * 8]));
  float sums[D / 8][4] = {}, top[2] = {-3.0e38f, -3.0e38f}, total[2] = {0.0f, 0.0f};
  const int last = causal ? skv - sq + q0 + ROWS : skv, seen = last < skv ? last : skv;
  for (int k0 = 0; k0 < seen; k0 += KEYS) {
    __syncthreads();
    load_rows<D>(k + base, keys, k0, skv);
    load_rows<D>(v + base, values, k0, skv);
    __syncthreads();
    float scores[KEYS / 8][4] = {};
#pragma unroll
    for (int p = 0; p < D / 16; p++)
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) {
        u32 four[4];
        load_8x8_x4(four, shared_address(&keys[j * 16 + (lane >> 4) * 8 + (lane & 7)][p * 16 + (lane >> 3 & 1) * 8]));
        multiply_add(scores[2 * j], query[p], four);
        multiply_add(scores[2 * j + 1], query[p], four + 2);
      }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int limit = causal ? skv - sq + row + 8 * half + 1 : skv, end = limit < skv ? limit : skv;
      const float shrink = soften(scores, half, end - k0 - (lane & 3) * 2, scale, &top[half], &total[half]);
#pragma unroll
      for (int j = 0; j < D / 8; j++) sums[j][2 * half] *= shrink, sums[j][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int p = 0; p < KEYS / 16; p++) {
      const u32 weights[4] = {pair(scores[2 * p][0], scores[2 * p][1]), pair(scores[2 * p][2], scores[2 * p][3]),
                              pair(scores[2 * p + 1][0], scores[2 * p + 1][1]), pair(scores[2 * p + 1][2], scores[2 * p + 1][3])};
#pragma unroll
      for (int j = 0; j < D / 16; j++) {
        u32 four[4];
        load_8x8_x4_transposed(four, shared_address(&values[p * 16 + (lane & 15)][j * 16 + (lane >> 4) * 8]));
        multiply_add(sums[2 * j], weights, four);
        multiply_add(sums[2 * j + 1], weights, four + 2);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
    if (row + 8 * half >= sq) continue;
    u16* to = o + queries + (long long)(row + 8 * half) * D + (lane & 3) * 2;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
      *(u32*)(to + j * 8) = pair(sums[j][2 * half] / total[half], sums[j][2 * half + 1] / total[half]);
  }
}

extern "C" __global__ __launch_bounds__(128) void attention_mma_bf16_d64(const u16* q, const u16* k, const u16* v, u16* o, int hq,
                                                                         int hkv, int sq, int skv, int causal, float scale) {
  attend<64>(q, k, v, o, hq, hkv, sq, skv, causal, scale);
}

extern "C" __global__ __launch_bounds__(128) void attention_mma_bf16_d128(const u16* q, const u16* k, const u16* v, u16* o, int hq,
                                                                          int hkv, int sq, int skv, int causal, float scale) {
  attend<128>(q, k, v, o, hq, hkv, sq, skv, causal, scale);
}
