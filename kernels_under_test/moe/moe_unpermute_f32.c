/* The weighted sum of each token's expert rows, slot by slot, so that sums have one order. */
#include <omp.h>

void moe_unpermute_f32(const float *rows, const int *place, const float *weights, float *out, long t, long topk, long h,
                       int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < t; r++) {
        float *to = out + r * h;
        for (long slot = r * topk; slot < (r + 1) * topk; slot++) {
            const float *row = rows + place[slot] * h;
            float weight = weights[slot];
            if (slot == r * topk)
                for (long j = 0; j < h; j++) to[j] = weight * row[j];
            else
                for (long j = 0; j < h; j++) to[j] += weight * row[j];
        }
    }
}
