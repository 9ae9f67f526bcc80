// C[m,n] = A[m,k] * W[n,k]^T in bfloat16 with float32 sums: mma.sync m16n8k16, four stages of cp.async, ldmatrix.
// 128 x 128 tile, 32 deep, 8 warps, each 64 x 32; 64 KB of shared memory. k and n are multiples of 8.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define TILE 128
#define DEPTH 32
#define STAGES 4
#define SIDE (TILE * DEPTH * 2)  // bytes of one operand's tile

#ifndef KERNELWATCH_HOST
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy_16(u32 to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N>
__device__ __forceinline__ void wait_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N));
}
__device__ __forceinline__ void load_8x8_x4(u32* r, u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}
__device__ __forceinline__ void multiply_add(float* c, const u32* a, const u32* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ __forceinline__ u32 narrow(float value) {
  const u32 bits = __float_as_uint(value);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Byte offset of a 16-byte chunk in a row of 64 bytes; rows are swizzled so that ldmatrix meets no bank twice.
__device__ __forceinline__ u32 chunk_at(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }

__device__ __forceinline__ void load_side(const u16* from, u32 to, int first, int rows, int k0, int k) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int id = threadIdx.x + i * 256, row = id >> 2, chunk = id & 3, p = k0 + chunk * 8;
    const bool inside = first + row < rows && p < k;
    copy_16(to + chunk_at(row, chunk), from + (u64)(inside ? first + row : 0) * k + (inside ? p : 0), inside);
  }
}

extern "C" __global__ __launch_bounds__(256) void gemm_mma_bf16(const u16* a, const u16* w, u16* c, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int warp_row = (warp & 1) * 64, warp_col = (warp >> 1) * 32, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
  const u32 base = shared_address(memory);
  const int steps = (k + DEPTH - 1) / DEPTH;
  float sum[4][4][4] = {};
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) {
      load_side(a, base + s * 2 * SIDE, row0, m, s * DEPTH, k);
      load_side(w, base + s * 2 * SIDE + SIDE, col0, n, s * DEPTH, k);
    }
    commit();
  }
  for (int step = 0; step < steps; step++) {
    wait_all_but<STAGES - 2>();
    __syncthreads();
    const int ahead = step + STAGES - 1;
    if (ahead < steps) {
      load_side(a, base + ahead % STAGES * 2 * SIDE, row0, m, ahead * DEPTH, k);
      load_side(w, base + ahead % STAGES * 2 * SIDE + SIDE, col0, n, ahead * DEPTH, k);
    }
    commit();
    const u32 left_at = base + step % STAGES * 2 * SIDE, right_at = left_at + SIDE;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      u32 left[4][4], right[4][2];
#pragma unroll
      for (int i = 0; i < 4; i++)
        load_8x8_x4(left[i], left_at + chunk_at(warp_row + i * 16 + (lane & 15), half * 2 + (lane >> 4)));
#pragma unroll
      for (int j = 0; j < 2; j++) {
        u32 four[4];
        load_8x8_x4(four, right_at + chunk_at(warp_col + j * 16 + ((lane >> 4) << 3) + (lane & 7), half * 2 + (lane >> 3 & 1)));
        right[2 * j][0] = four[0], right[2 * j][1] = four[1];
        right[2 * j + 1][0] = four[2], right[2 * j + 1][1] = four[3];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) multiply_add(sum[i][j], left[i], right[j]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = row0 + warp_row + i * 16 + (lane >> 2), col = col0 + warp_col + j * 8 + (lane & 3) * 2;
      const float* s = sum[i][j];
      if (col < n && row < m) *(u32*)(c + (u64)row * n + col) = narrow(s[0]) | narrow(s[1]) << 16;
      if (col < n && row + 8 < m) *(u32*)(c + (u64)(row + 8) * n + col) = narrow(s[2]) | narrow(s[3]) << 16;
    }
}
