/* Copy the pages of each sequence into one piece. */
#include <omp.h>
#include <stdint.h>
#include <string.h>

void kv_gather_f32(const float *cache, const int64_t *table, float *out, long b, long kv, long page, long width,
                   int threads) {
    long pages = (kv + page - 1) / page;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < b * pages; i++) {
        long row = i / pages, first = i % pages * page, count = kv - first < page ? kv - first : page;
        memcpy(out + (row * kv + first) * width, cache + table[i] * page * width, sizeof(float) * count * width);
    }
}
