// Router: the topk best logits of each token and their softmax weights, one warp a token.
// Each round takes the best of what is left (ties go to the smaller expert), so the order is descending.
#define EXPERTS 512

extern "C" __global__ __launch_bounds__(128) void moe_gate_f32(const float* logits, float* out, int t, int e, int topk) {
  const int token = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (token >= t) return;
  float held[EXPERTS / 32];
#pragma unroll
  for (int i = 0; i < EXPERTS / 32; i++) {
    const int expert = i * 32 + lane;
    held[i] = expert < e ? logits[(long long)token * e + expert] : -3.4e38f;
  }
  float* experts = out + (long long)token * topk;
  float* weights = out + (long long)(t + token) * topk;
  float first = 0.0f, total = 0.0f;
  for (int round = 0; round < topk; round++) {
    float best = -3.4e38f;
    int at = EXPERTS;
#pragma unroll
    for (int i = 0; i < EXPERTS / 32; i++)
      if (held[i] > best) best = held[i], at = i * 32 + lane;
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, step);
      const int other_at = __shfl_xor_sync(0xffffffffu, at, step);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
#pragma unroll
    for (int i = 0; i < EXPERTS / 32; i++)
      if (i * 32 + lane == at) held[i] = -3.4e38f;
    if (round == 0) first = best;
    total += __expf(best - first);
    if (lane == 0) experts[round] = (float)at, weights[round] = __expf(best - first);
  }
  if (lane == 0)
    for (int round = 0; round < topk; round++) weights[round] /= total;
}
