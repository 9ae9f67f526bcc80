/* Grouped product: rows start[x] .. start[x+1]-1 of x[rows,k] times w[x] of w[e,k,n]. */
#include "moe_f32.c"

static long grouped_floats(long rows, long n) {
    return padded(rows, MR) * (padded(n, NR) + KC) + KC * NR;
}

long moe_grouped_f32_workspace(long rows, long n, int threads) { return 4 * threads * grouped_floats(rows, n); }

void moe_grouped_f32(const float *x, const int *start, const float *w, float *out, long e, long rows, long k, long n,
                     float *workspace, int threads) {
    long ldc = padded(n, NR), space = padded(rows, MR);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (long expert = 0; expert < e; expert++) {
        float *result = workspace + omp_get_thread_num() * grouped_floats(rows, n);
        float *packed = result + space * ldc, *panel = packed + space * KC;
        long first = start[expert], count = start[expert + 1] - first;
        if (count == 0) continue;
        product(x + first * k, 0, 1, count, w + expert * k * n, n, k, result, ldc, panel, packed);
        for (long r = 0; r < count; r++) memcpy(out + (first + r) * n, result + r * ldc, sizeof(float) * n);
    }
}
