// Copy the row of the token that each place of the order names; one block a row.
typedef unsigned short u16;

extern "C" __global__ void moe_gather_bf16(const u16* x, const int* order, u16* out, int topk, int h) {
  const long long from = order[blockIdx.x] / topk;
  for (int j = threadIdx.x; j < h; j += blockDim.x) out[(long long)blockIdx.x * h + j] = x[from * h + j];
}
