// The weighted sum of each token's expert rows, slot by slot; one block a token.
typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ void moe_unpermute_bf16(const u16* rows, const int* place, const u16* weights, u16* out, int topk, int h) {
  const long long token = blockIdx.x;
  for (int j = threadIdx.x; j < h; j += blockDim.x) {
    float sum = 0.0f;
    for (int slot = 0; slot < topk; slot++)
      sum += widen(weights[token * topk + slot]) * widen(rows[(long long)place[token * topk + slot] * h + j]);
    out[token * h + j] = narrow(sum);
  }
}
