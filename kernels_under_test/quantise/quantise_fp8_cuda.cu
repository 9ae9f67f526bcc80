// FP8 E4M3 codes of bfloat16 values with one scale per 128 channels: one warp a group, four values a lane.
// Rounding to E4M3 on the bits of a float: add half of what is cut off (ties to even), shift, move the exponent; values
// below 2^-6 are rounded by adding 2^14, whose last bit is worth 2^-9.
typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }

__device__ static unsigned char encode(float value) {
  const unsigned bits = __float_as_uint(value), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  const unsigned normal = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - (120u << 3);
  const unsigned small = __float_as_uint(fabsf(value) + 16384.0f) & 0xfu;
  return (unsigned char)(sign | (size < 0x3c800000u ? small : normal));
}

extern "C" __global__ __launch_bounds__(128) void quantise_fp8_bf16(const u16* x, unsigned char* codes, float* scales, int groups) {
  const long long group = (long long)blockIdx.x * 4 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (group >= groups) return;
  float values[4], top = 1e-10f;
  for (int i = 0; i < 4; i++) {
    values[i] = widen(x[group * 128 + lane * 4 + i]);
    top = fmaxf(top, fabsf(values[i]));
  }
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  const float scale = top / 448.0f;
  for (int i = 0; i < 4; i++) codes[group * 128 + lane * 4 + i] = encode(values[i] / scale);
  if (lane == 0) scales[group] = scale;
}
