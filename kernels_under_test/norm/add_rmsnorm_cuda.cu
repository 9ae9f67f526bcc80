// Residual add fused with RMSNorm in bfloat16, one block a row; out[0] = x + residual, out[1] = its norm.
// The norm is taken of the sum before it is rounded.
typedef unsigned short u16;

__device__ static float widen(u16 value) { return __uint_as_float((unsigned)value << 16); }
__device__ static u16 narrow(float value) {
  const unsigned bits = __float_as_uint(value);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ static float block_sum(float value) {
  __shared__ float parts[8];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 8; i++) sum += parts[i];
  return sum;
}

extern "C" __global__ __launch_bounds__(256) void add_rmsnorm_bf16(const u16* x, const u16* residual, const u16* weight, u16* out,
                                                                   int rows, int cols, float epsilon) {
  const long long start = (long long)blockIdx.x * cols;
  float sum = 0.0f;
  for (int j = threadIdx.x; j < cols; j += 256) {
    const float added = widen(x[start + j]) + widen(residual[start + j]);
    out[start + j] = narrow(added);
    sum += added * added;
  }
  const float scale = rsqrtf(block_sum(sum) / cols + epsilon);
  for (int j = threadIdx.x; j < cols; j += 256) {
    const float added = widen(x[start + j]) + widen(residual[start + j]);
    out[(long long)rows * cols + start + j] = narrow(added * scale * widen(weight[j]));
  }
}
