/* Bring the rows of tokens together by expert: count, add up, scatter (in token order, so without atomics). */
#include "moe_f32.c"

long moe_permute_f32_workspace(long t, long e, long topk, int threads) {
    (void)threads;
    return sizeof(int) * (e + 1 + t * topk);
}

void moe_permute_f32(const float *x, const int *experts, float *out, long t, long e, long topk, long h, int *workspace,
                     int threads) {
    sizes z = {t, e, topk, h, 0, t * topk};
    int *start = workspace, *order = start + e + 1;
    sort_by_expert(experts, z, start, order);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < z.rows; r++) memcpy(out + r * h, x + order[r] / topk * h, sizeof(float) * h);
}
