/* Single-precision GEMM, C[m,n] = A[m,k] * W[n,k]^T, packed and tiled for registers.
 *
 * One panel of W (KC deep, NC wide) is transposed into the workspace and stays in the second-level cache; MR rows of A
 * stay in the first level; the register tile of MR x NR values then runs KC steps of MR*NR multiply-adds.
 */
#include <omp.h>
#include <string.h>

#define MR 12  /* rows of the register tile */
#define KC 384 /* depth of a packed panel */
#define NC 512 /* columns of a packed panel, a multiple of NR */
#ifdef __AVX512F__
#define VL 16 /* floats in a vector */
#define VR 2  /* vectors in a row of the register tile */
#else
#define VL 8
#define VR 1
#endif
#define NR (VL * VR)

typedef float vec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias)); /* a vector at any address */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int quad_index __attribute__((vector_size(16)));

static long least(long a, long b) { return a < b ? a : b; }

/* Transpose a 4x4 block: out[p * NR + j] = in[j * ld + p]. */
static inline void transpose_4x4(const float *in, long ld, float *out) {
    quad r0 = *(const quad *)in, r1 = *(const quad *)(in + ld);
    quad r2 = *(const quad *)(in + 2 * ld), r3 = *(const quad *)(in + 3 * ld);
    const quad_index low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, left = {0, 1, 4, 5}, right = {2, 3, 6, 7};
    quad t0 = __builtin_shuffle(r0, r1, low), t1 = __builtin_shuffle(r2, r3, low);
    quad t2 = __builtin_shuffle(r0, r1, high), t3 = __builtin_shuffle(r2, r3, high);
    *(quad *)out = __builtin_shuffle(t0, t1, left);
    *(quad *)(out + NR) = __builtin_shuffle(t0, t1, right);
    *(quad *)(out + 2 * NR) = __builtin_shuffle(t2, t3, left);
    *(quad *)(out + 3 * NR) = __builtin_shuffle(t2, t3, right);
}

/* Pack `cols` rows of W, `depth` deep, as depth x NR; missing columns become zeros. */
static void pack_panel(const float *w, long ld, long cols, long depth, float *out) {
    if (cols < NR) memset(out, 0, sizeof(float) * NR * depth);
    for (long j = 0; j < cols; j += 4) {
        long p = 0;
        if (cols - j >= 4)
            for (; p + 4 <= depth; p += 4) transpose_4x4(w + j * ld + p, ld, out + p * NR + j);
        for (; p < depth; p++)
            for (long jj = j; jj < least(j + 4, cols); jj++) out[p * NR + jj] = w[jj * ld + p];
    }
}

/* Copy `rows` rows of A, `depth` deep, at the fixed stride KC; missing rows become zeros. */
static void pack_rows(const float *a, long ld, long rows, long depth, float *out) {
    for (long i = 0; i < MR; i++) {
        if (i < rows) memcpy(out + i * KC, a + i * ld, sizeof(float) * depth);
        else memset(out + i * KC, 0, sizeof(float) * depth);
    }
}

/* One register tile: c (+)= a * b over `depth` steps; `first` overwrites c. */
static void tile(const float *a, const float *b, long depth, float *c, long ldc, long rows, long cols, int first) {
    vec sum[MR][VR];
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) sum[i][v] = (vec){0};
    for (long p = 0; p < depth; p++) {
        vec right[VR];
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) right[v] = *(const loose *)(b + p * NR + v * VL);
#pragma GCC unroll 32
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int v = 0; v < VR; v++) sum[i][v] += a[i * KC + p] * right[v];
    }
    if (rows == MR && cols == NR) {
#pragma GCC unroll 32
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int v = 0; v < VR; v++) {
                loose *at = (loose *)(c + i * ldc + v * VL);
                *at = first ? sum[i][v] : sum[i][v] + *at;
            }
        return;
    }
    float edge[MR * NR];
    memcpy(edge, sum, sizeof edge);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < cols; j++) c[i * ldc + j] = (first ? 0.0f : c[i * ldc + j]) + edge[i * NR + j];
}

long gemm_f32_workspace(int threads) { return sizeof(float) * ((long)KC * NC + (long)threads * MR * KC); }

void gemm_f32(const float *a, const float *w, float *c, long m, long n, long k, float *workspace, int threads) {
    float *panels = workspace;
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (long p0 = 0; p0 < k; p0 += KC) {
        long depth = least(KC, k - p0);
        for (long n0 = 0; n0 < n; n0 += NC) {
            long width = least(NC, n - n0);
#pragma omp for
            for (long j = 0; j < width; j += NR)
                pack_panel(w + (n0 + j) * k + p0, k, least(NR, width - j), depth, panels + j * KC);
#pragma omp for
            for (long i = 0; i < m; i += MR) {
                float *rows = workspace + KC * NC + omp_get_thread_num() * MR * KC;
                pack_rows(a + i * k + p0, k, least(MR, m - i), depth, rows);
                for (long j = 0; j < width; j += NR)
                    tile(rows, panels + j * KC, depth, c + i * n + n0 + j, n, least(MR, m - i),
                         least(NR, width - j), p0 == 0);
            }
        }
    }
}
