// Plan of a layer from the gate's choice: `order` lists the (token, slot) pairs sorted by expert, in token order within
// one, and `start` says where each expert's pairs begin. One block; the order never depends on the timing of atomics.
#define PLANNERS 512

extern "C" __global__ __launch_bounds__(PLANNERS) void moe_plan(const float* chosen, int* order, int* start, int rows, int e) {
  __shared__ int counts[PLANNERS], starts[PLANNERS];
  const int expert = threadIdx.x;
  counts[expert] = 0;
  __syncthreads();
  for (int r = threadIdx.x; r < rows; r += PLANNERS) atomicAdd(&counts[(int)chosen[r]], 1);
  __syncthreads();
  if (expert == 0)
    for (int i = 0, sum = 0; i < e; i++) starts[i] = sum, sum += counts[i];
  __syncthreads();
  if (expert < e) {
    start[expert] = starts[expert];
    for (int r = 0, at = starts[expert]; r < rows; r++)
      if ((int)chosen[r] == expert) order[at++] = r;
  }
  if (expert == 0) start[e] = rows;
}
