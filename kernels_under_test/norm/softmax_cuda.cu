// Softmax of float32 rows, one block a row: running maximum and sum in one pass, the division in a second.
#define THREADS 256

extern "C" __global__ __launch_bounds__(THREADS) void softmax_f32(const float* x, float* out, int cols) {
  __shared__ float tops[THREADS / 32], sums[THREADS / 32];
  const long long start = (long long)blockIdx.x * cols;
  float top = -3.4e38f, sum = 0.0f;
  for (int j = threadIdx.x; j < cols; j += THREADS) {
    const float value = x[start + j], higher = fmaxf(top, value);
    sum = sum * __expf(top - higher) + __expf(value - higher);
    top = higher;
  }
  for (int step = 16; step > 0; step /= 2) {
    const float other_top = __shfl_xor_sync(0xffffffffu, top, step), other_sum = __shfl_xor_sync(0xffffffffu, sum, step);
    const float higher = fmaxf(top, other_top);
    sum = sum * __expf(top - higher) + other_sum * __expf(other_top - higher);
    top = higher;
  }
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top, sums[threadIdx.x / 32] = sum;
  __syncthreads();
  top = tops[0], sum = 0.0f;
  for (int i = 1; i < THREADS / 32; i++) top = fmaxf(top, tops[i]);
  for (int i = 0; i < THREADS / 32; i++) sum += sums[i] * __expf(tops[i] - top);
  for (int j = threadIdx.x; j < cols; j += THREADS) out[start + j] = __expf(x[start + j] - top) / sum;
}
