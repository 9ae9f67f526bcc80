/* Decode with grouped heads over a paged cache, split along the cache.
 *
 * q[b,hq,d], k and v [page, tokens, hkv, d], table[b, pages] -> o[b,hq,d]. Each (sequence, key head, split) is a piece of its
 * own that walks its tokens once for all query heads of the group; a second pass merges the pieces by their maxima and sums.
 * Bound by reading the cache, so scores are plain dot products along d. d is a multiple of VL.
 */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define SPLIT 512 /* tokens of a piece */
#define STEP 16   /* tokens whose scores are taken together */
#define DMAX 256
#define GROUP 16 /* most query heads of a key head */
#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif
#define PIECE (GROUP * (DMAX + 2)) /* floats of a piece: values, maximum, sum of each head */

typedef float vec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias));

typedef struct {
    const float *k, *v;
    const int64_t *table;
    long hkv, d, page, group;
    float scale;
} cache;

static inline long least(long a, long b) { return a < b ? a : b; }

static inline float total_of(vec x) {
    float sum = 0.0f;
    for (int v = 0; v < VL; v++) sum += x[v];
    return sum;
}

/* Offset of a token's head in the paged arrays. */
static inline long at(const cache *c, long token, long head) {
    return ((c->table[token / c->page] * c->page + token % c->page) * c->hkv + head) * c->d;
}

static inline float dot(const float *a, const float *b, long d) {
    vec sum = {0};
    for (long p = 0; p < d; p += VL) sum += *(const loose *)(a + p) * *(const loose *)(b + p);
    return total_of(sum);
}

static inline void add(float *to, const float *v, float weight, long d) {
    for (long p = 0; p < d; p += VL) *(loose *)(to + p) += weight * *(const loose *)(v + p);
}

static void piece(const cache *c, const float *q, long head, long first, long end, float *out) {
    float *top = out + GROUP * DMAX, *total = top + GROUP;
    memset(out, 0, sizeof(float) * GROUP * DMAX);
    for (long g = 0; g < c->group; g++) top[g] = -FLT_MAX, total[g] = 0.0f;
    for (long t0 = first; t0 < end; t0 += STEP) {
        long count = least(STEP, end - t0);
        for (long g = 0; g < c->group; g++) {
            float scores[STEP], peak = top[g];
            for (long t = 0; t < count; t++) {
                scores[t] = dot(q + g * c->d, c->k + at(c, t0 + t, head), c->d) * c->scale;
                peak = scores[t] > peak ? scores[t] : peak;
            }
            float shrink = expf(top[g] - peak);
            total[g] *= shrink, top[g] = peak;
            for (long p = 0; p < c->d; p += VL) *(loose *)(out + g * DMAX + p) *= shrink;
            for (long t = 0; t < count; t++) {
                float weight = expf(scores[t] - peak);
                total[g] += weight;
                add(out + g * DMAX, c->v + at(c, t0 + t, head), weight, c->d);
            }
        }
    }
}

static void merge(const float *pieces, long splits, long g, long d, float *o) {
    float peak = -FLT_MAX, sum = 0.0f;
    for (long s = 0; s < splits; s++) peak = fmaxf(peak, pieces[s * PIECE + GROUP * DMAX + g]);
    memset(o, 0, sizeof(float) * d);
    for (long s = 0; s < splits; s++) {
        const float *one = pieces + s * PIECE;
        float weight = expf(one[GROUP * DMAX + g] - peak);
        sum += weight * one[GROUP * DMAX + GROUP + g];
        add(o, one + g * DMAX, weight, d);
    }
    for (long p = 0; p < d; p++) o[p] /= sum;
}

long attention_decode_f32_workspace(long b, long hkv, long kv, int threads) {
    (void)threads;
    return sizeof(float) * b * hkv * ((kv + SPLIT - 1) / SPLIT) * PIECE;
}

void attention_decode_f32(const float *q, const float *k, const float *v, const int64_t *table, float *o, long b, long hq,
                          long hkv, long kv, long d, long page, float scale, float *workspace, int threads) {
    long group = hq / hkv, splits = (kv + SPLIT - 1) / SPLIT, pages = (kv + page - 1) / page;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < b * hkv * splits; i++) {
        long row = i / splits / hkv, head = i / splits % hkv, first = i % splits * SPLIT;
        cache c = {k, v, table + row * pages, hkv, d, page, group, scale};
        piece(&c, q + (row * hq + head * group) * d, head, first, least(kv, first + SPLIT), workspace + i * PIECE);
    }
    for (long i = 0; i < b * hq; i++)
        merge(workspace + i / group * splits * PIECE, splits, i % group, d, o + i * d);
}
