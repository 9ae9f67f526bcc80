// Top-k, then top-p, then one draw, for float32 logits; one block a row.
// Each thread holds the best of its own stride of the row. A round finds the best of the block, and only the thread that held
// it looks through its stride again for the next one, so the row is read once, and k strides of it again.
#define THREADS 512
#define KMAX 256

// The order of a stable descending sort: larger first, and the smaller token among equals.
__device__ static bool comes_before(float a, int at, float b, int bt) { return a > b || (a == b && at < bt); }

// The first in the order of this thread's stride that comes after (value, token).
__device__ static void next_best(const float* x, int vocab, float after, int after_token, float* value, int* token) {
  *value = -3.4e38f, *token = vocab;
  for (int j = threadIdx.x; j < vocab; j += THREADS)
    if (comes_before(after, after_token, x[j], j) && comes_before(x[j], j, *value, *token)) *value = x[j], *token = j;
}

extern "C" __global__ __launch_bounds__(THREADS) void sample_f32(const float* logits, const float* draw, long long* out, int vocab,
                                                                 int k, float p) {
  __shared__ float best[KMAX], warp_value[THREADS / 32];
  __shared__ int tokens[KMAX], warp_token[THREADS / 32];
  const float* x = logits + (long long)blockIdx.x * vocab;
  float mine;
  int my_token;
  next_best(x, vocab, 3.4e38f, -1, &mine, &my_token);
  for (int round = 0; round < k; round++) {
    float value = mine;
    int token = my_token;
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, value, step);
      const int other_token = __shfl_xor_sync(0xffffffffu, token, step);
      if (comes_before(other, other_token, value, token)) value = other, token = other_token;
    }
    if (threadIdx.x % 32 == 0) warp_value[threadIdx.x / 32] = value, warp_token[threadIdx.x / 32] = token;
    __syncthreads();
    value = warp_value[0], token = warp_token[0];
    for (int i = 1; i < THREADS / 32; i++)
      if (comes_before(warp_value[i], warp_token[i], value, token)) value = warp_value[i], token = warp_token[i];
    if (token == my_token) {
      best[round] = value, tokens[round] = token;
      next_best(x, vocab, value, token, &mine, &my_token);
    }
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  float total = 0.0f, reached = 0.0f;
  for (int i = 0; i < k; i++) total += expf(best[i] - best[0]);
  int kept = 0;
  do reached += expf(best[kept] - best[0]) / total;
  while (++kept < k && reached < p);
  const float target = draw[blockIdx.x] * reached;
  int chosen = 0;
  for (float sum = 0.0f; chosen < kept - 1; chosen++)
    if ((sum += expf(best[chosen] - best[0]) / total) > target) break;
  out[blockIdx.x] = tokens[chosen];
}
