/* Many small products of one shape: C[b] = A[b] * W[b]^T, each by the packed GEMM beside it. */
#include "gemm_f32.c"

long gemm_batched_f32_workspace(int threads) { return threads * gemm_f32_workspace(1); }

void gemm_batched_f32(const float *a, const float *w, float *c, long b, long m, long n, long k, float *workspace,
                      int threads) {
    long each = gemm_f32_workspace(1) / (long)sizeof(float);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < b; i++)
        gemm_f32(a + i * m * k, w + i * n * k, c + i * m * n, m, n, k, workspace + omp_get_thread_num() * each, 1);
}
