// Sort the rows of tokens by expert in token order: one block counts, adds up and places, each thread one expert, so that
// the order never depends on the timing of atomics.
#define THREADS 512

extern "C" __global__ __launch_bounds__(THREADS) void moe_order(const int* experts, int* order, int rows, int e) {
  __shared__ int counts[THREADS], starts[THREADS];
  const int expert = threadIdx.x;
  counts[expert] = 0;
  __syncthreads();
  for (int r = threadIdx.x; r < rows; r += THREADS) atomicAdd(&counts[experts[r]], 1);
  __syncthreads();
  if (expert == 0)
    for (int i = 0, sum = 0; i < e; i++) starts[i] = sum, sum += counts[i];
  __syncthreads();
  if (expert < e)
    for (int r = 0, at = starts[expert]; r < rows; r++)
      if (experts[r] == expert) order[at++] = r;
}
