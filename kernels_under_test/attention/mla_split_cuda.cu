// MLA decode in absorbed form over a paged cache, bfloat16: one warp a head, eight heads a block, lanes along the 576 values of
// a cached row, whose first 512 are also the value. Leaves the weighted sum, the maximum and the sum of weights of its piece.
#define SPLIT 256
#define PAGE 64
#define DQ 576
#define DV 512

typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }

extern "C" __global__ __launch_bounds__(256) void mla_split_bf16(const u16* q, const u16* cache, const long long* table, float* parts,
                                                                 int h, int kv, float scale) {
  const int split = blockIdx.x, head = blockIdx.y * 8 + threadIdx.x / 32, row = blockIdx.z, lane = threadIdx.x % 32;
  const int pages = (kv + PAGE - 1) / PAGE, first = split * SPLIT, end = first + SPLIT < kv ? first + SPLIT : kv;
  if (head >= h) return;
  float mine[DQ / 32], sum[DV / 32] = {}, top = -3.4e38f, total = 0.0f;
#pragma unroll
  for (int i = 0; i < DQ / 32; i++) mine[i] = widen(q[((long long)row * h + head) * DQ + i * 32 + lane]) * scale;
  for (int token = first; token < end; token++) {
    const u16* cached = cache + (table[row * pages + token / PAGE] * PAGE + token % PAGE) * DQ + lane;
    float values[DV / 32], score = 0.0f;
#pragma unroll
    for (int i = 0; i < DQ / 32; i++) {
      const float value = widen(cached[i * 32]);
      score += mine[i] * value;
      if (i < DV / 32) values[i] = value;
    }
    for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
    const float higher = fmaxf(top, score), shrink = __expf(top - higher), weight = __expf(score - higher);
    total = total * shrink + weight;
    top = higher;
#pragma unroll
    for (int i = 0; i < DV / 32; i++) sum[i] = sum[i] * shrink + weight * values[i];
  }
  float* out = parts + (((long long)row * h + head) * gridDim.x + split) * (DV + 2);
#pragma unroll
  for (int i = 0; i < DV / 32; i++) out[i * 32 + lane] = sum[i];
  if (lane == 0) out[DV] = top, out[DV + 1] = total;
}
