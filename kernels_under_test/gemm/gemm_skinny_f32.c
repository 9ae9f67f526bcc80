/* GEMM for a few rows (decode): C[m,n] = A[m,k] * W[n,k]^T with m <= 16, bound by reading W once.
 *
 * Four rows of W are read together and multiplied into every row of A; the sums are kept in vectors along k.
 */
#include <omp.h>

#define RW 4 /* rows of W read together */
#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif

typedef float vec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias));

static inline float total(vec x) {
    float sum = 0.0f;
    for (int v = 0; v < VL; v++) sum += x[v];
    return sum;
}

static void rows_of_w(const float *a, const float *w, float *c, long m, long n, long k) {
    for (long i = 0; i < m; i++) {
        const float *row = a + i * k;
        vec sum[RW] = {{0}};
        long p = 0;
        for (; p + VL <= k; p += VL)
#pragma GCC unroll 8
            for (int r = 0; r < RW; r++) sum[r] += *(const loose *)(row + p) * *(const loose *)(w + r * k + p);
        for (int r = 0; r < RW; r++) {
            float rest = 0.0f;
            for (long q = p; q < k; q++) rest += row[q] * w[r * k + q];
            c[i * n + r] = total(sum[r]) + rest;
        }
    }
}

static void one_row_of_w(const float *a, const float *w, float *c, long m, long n, long k) {
    for (long i = 0; i < m; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long p = 0; p < k; p++) sum += a[i * k + p] * w[p];
        c[i * n] = sum;
    }
}

void gemm_skinny_f32(const float *a, const float *w, float *c, long m, long n, long k, int threads) {
    long whole = n / RW * RW;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long j = 0; j < whole; j += RW) rows_of_w(a, w + j * k, c + j, m, n, k);
    for (long j = whole; j < n; j++) one_row_of_w(a, w + j * k, c + j, m, n, k);
}
