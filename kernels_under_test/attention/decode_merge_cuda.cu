// Merge the pieces of a split decode by their maxima and sums; one warp a query head.
typedef unsigned short merged;

extern "C" __global__ void decode_merge_bf16(const float* parts, merged* out, int splits, int d) {
  const float* mine = parts + (long long)blockIdx.x * splits * (d + 2);
  float top = -3.4e38f, total = 0.0f;
  for (int s = 0; s < splits; s++) top = fmaxf(top, mine[s * (d + 2) + d]);
  for (int s = 0; s < splits; s++) total += mine[s * (d + 2) + d + 1] * __expf(mine[s * (d + 2) + d] - top);
  for (int j = threadIdx.x; j < d; j += 32) {
    float sum = 0.0f;
    for (int s = 0; s < splits; s++) sum += mine[s * (d + 2) + j] * __expf(mine[s * (d + 2) + d] - top);
    const unsigned bits = __float_as_uint(sum / total);
    out[(long long)blockIdx.x * d + j] = (merged)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
}
