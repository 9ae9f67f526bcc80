// Copy the pages of each sequence into one piece; one block a token.
typedef unsigned short u16;

extern "C" __global__ void kv_gather_bf16(const u16* cache, const long long* table, u16* out, int kv, int page, int width) {
  const int row = blockIdx.x / kv, token = blockIdx.x % kv, pages = (kv + page - 1) / page;
  const long long from = table[row * pages + token / page] * page + token % page;
  for (int j = threadIdx.x; j < width; j += blockDim.x) out[(long long)blockIdx.x * width + j] = cache[from * width + j];
}
