// Write each new token's keys or values at its slot of the cache; one block a token.
typedef unsigned short u16;

extern "C" __global__ void kv_append_bf16(const u16* fresh, const long long* slot, u16* cache, int width) {
  for (int j = threadIdx.x; j < width; j += blockDim.x)
    cache[slot[blockIdx.x] * width + j] = fresh[(long long)blockIdx.x * width + j];
}
