// Rotary position embedding in bfloat16, halves convention; one block a token.
typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ void rope_bf16(const u16* x, const u16* cosine, const u16* sine, u16* out, int heads, int d) {
  const int half = d / 2;
  const long long token = blockIdx.x;
  for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
    const int j = i % half;
    const long long at = (token * heads + i / half) * d + j;
    const float a = widen(x[at]), b = widen(x[at + half]);
    const float c = widen(cosine[token * half + j]), s = widen(sine[token * half + j]);
    out[at] = narrow(a * c - b * s);
    out[at + half] = narrow(b * c + a * s);
  }
}
