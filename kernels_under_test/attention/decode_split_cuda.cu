// Decode with grouped heads over a paged cache, bfloat16: one block for each (split, key head, sequence), one warp for each
// query head of the group, lanes along d. Leaves the weighted sum, the maximum and the sum of weights of its piece.
#define SPLIT 256
#define DMAX 256

typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }

extern "C" __global__ void decode_split_bf16(const u16* q, const u16* k, const u16* v, const long long* table, float* parts,
                                             int hq, int hkv, int kv, int d, int page, float scale) {
  const int split = blockIdx.x, head = blockIdx.y, row = blockIdx.z, lane = threadIdx.x % 32, g = threadIdx.x / 32;
  const int group = hq / hkv, query = head * group + g, pages = (kv + page - 1) / page;
  const int first = split * SPLIT, end = first + SPLIT < kv ? first + SPLIT : kv;
  float mine[DMAX / 32], sum[DMAX / 32] = {}, top = -3.4e38f, total = 0.0f;
#pragma unroll
  for (int i = 0; i < DMAX / 32; i++)
    mine[i] = i * 32 + lane < d ? widen(q[((long long)row * hq + query) * d + i * 32 + lane]) * scale : 0.0f;
  for (int token = first; token < end; token++) {
    const long long at = ((table[row * pages + token / page] * page + token % page) * hkv + head) * d;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < DMAX / 32; i++)
      if (i * 32 + lane < d) score += mine[i] * widen(k[at + i * 32 + lane]);
    for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
    const float higher = fmaxf(top, score), shrink = __expf(top - higher), weight = __expf(score - higher);
    total = total * shrink + weight;
    top = higher;
#pragma unroll
    for (int i = 0; i < DMAX / 32; i++)
      if (i * 32 + lane < d) sum[i] = sum[i] * shrink + weight * widen(v[at + i * 32 + lane]);
  }
  float* out = parts + (((long long)row * hq + query) * gridDim.x + split) * (d + 2);
#pragma unroll
  for (int i = 0; i < DMAX / 32; i++)
    if (i * 32 + lane < d) out[i * 32 + lane] = sum[i];
  if (lane == 0) out[d] = top, out[d + 1] = total;
}
