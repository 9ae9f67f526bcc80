// C[m,n] = A[m,k] * W[n,k]^T in float32 without tensor cores: 64 x 64 tiles, 256 threads, 4 x 4 values a thread.
#define TILE 64
#define DEPTH 16

extern "C" __global__ void gemm_tiled_f32(const float* a, const float* w, float* c, int m, int n, int k) {
  __shared__ float left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
      const int r = i / DEPTH, p = i % DEPTH;
      left[p][r] = row0 + r < m && k0 + p < k ? a[(long long)(row0 + r) * k + k0 + p] : 0.0f;
      right[p][r] = col0 + r < n && k0 + p < k ? w[(long long)(col0 + r) * k + k0 + p] : 0.0f;
    }
    __syncthreads();
    for (int p = 0; p < DEPTH; p++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += left[p][ty + 16 * i] * right[p][tx + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const int r = row0 + ty + 16 * i, q = col0 + tx + 16 * j;
      if (r < m && q < n) c[(long long)r * n + q] = sum[i][j];
    }
}
