/* Decode with multi-head latent attention, absorbed form, over a paged cache, in single precision.
 *
 * q[b,h,DQ], cache[page, BK, DQ], table[b, pages] -> o[b,h,DV]: a cached row is both the key (all DQ floats: the latent and
 * the rotary part) and the value (its first DV floats). The heads of a token are the rows of the register tile, since all
 * share one key; a page is transposed once for all heads. Softmax with a running maximum, base 2.
 */
#include <float.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define MR 8   /* heads in a register tile */
#define BK 64  /* tokens of a page, a multiple of NR */
#define DQ 576 /* floats of a query or key */
#define DV 512 /* floats of a value */
#ifdef __AVX512F__
#define VL 16
#define VR 2
#else
#define VL 8
#define VR 1
#endif
#define NR (VL * VR)
#define HEADS 128 /* most heads */
#define BLOCK_FLOATS (HEADS * (DQ + DV + 2) + MR * BK + DQ * BK)

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int ivec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias));

static inline long least(long a, long b) { return a < b ? a : b; }

static inline vec larger(vec a, vec b) {
    ivec first = a > b;
    return (vec)(((ivec)a & first) | ((ivec)b & ~first));
}

/* 2^x for x <= 0: split off the integer part by adding 1.5 * 2^23, a polynomial for the rest (relative error 1.2e-7). */
static inline vec exp2_vec(vec x) {
    const vec magic = (vec){} + 12582912.0f, floor_x = (vec){} - 126.0f;
    x = larger(x, floor_x);
    vec shifted = x + magic, f = x - (shifted - magic);
    vec p = (vec){} + 1.5403530e-4f;
    p = p * f + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    return (vec)((ivec)p + ((ivec)shifted << 23));
}

/* c (+)= a * b for MR rows and NR columns; a has the row stride lda, b has ldb between its `depth` rows. */
static inline void tile(const float *a, long lda, const float *b, long ldb, long depth, float *c, long ldc, int first) {
    vec sum[MR][VR];
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) sum[i][v] = first ? (vec){0} : (vec) * (const loose *)(c + i * ldc + v * VL);
    for (long p = 0; p < depth; p++) {
        vec right[VR];
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) right[v] = *(const loose *)(b + p * ldb + v * VL);
#pragma GCC unroll 32
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int v = 0; v < VR; v++) sum[i][v] += a[i * lda + p] * right[v];
    }
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) *(loose *)(c + i * ldc + v * VL) = sum[i][v];
}

static void tile_scores(const float *q, const float *kt, float *scores) {
    tile(q, DQ, kt, NR, DQ, scores, BK, 1);
}

static void tile_values(const float *p, const float *v, long keys, float *out) {
    tile(p, BK, v, DQ, keys, out, DV, 0);
}

/* Panels of NR keys of a page, each DQ x NR; keys beyond `keys` are zeros. */
static void transpose_page(const float *page, long keys, float *out) {
    for (long j = 0; j < BK; j += NR, out += DQ * NR)
        for (long p = 0; p < DQ; p++)
            for (long jj = 0; jj < NR; jj++) out[p * NR + jj] = j + jj < keys ? page[(j + jj) * DQ + p] : 0.0f;
}

/* Softmax of one row of a block: scores become weights, the running maximum and sum are updated; returns the factor
 * by which everything gathered so far shrinks. */
static float soften(float *row, long keys, long padded, float *top, float *total) {
    for (long j = keys; j < padded; j++) row[j] = -FLT_MAX;
    vec high = (vec){} + *top;
    for (long j = 0; j < padded; j += VL) high = larger(high, *(loose *)(row + j));
    float peak = high[0];
    for (int v = 1; v < VL; v++) peak = high[v] > peak ? high[v] : peak;
    vec sum = (vec){0};
    for (long j = 0; j < padded; j += VL) {
        vec weight = exp2_vec(*(loose *)(row + j) - peak);
        *(loose *)(row + j) = weight;
        sum += weight;
    }
    for (long j = keys; j < padded; j++) row[j] = 0.0f;
    float part = 0.0f;
    for (int v = 0; v < VL; v++) part += sum[v];
    float shrink = exp2_vec((vec){} + (*top - peak))[0];
    *total = *total * shrink + part;
    *top = peak;
    return shrink;
}

typedef struct {
    float *query, *gathered, *top, *total, *scores, *kt;
} state;

/* MR heads that start at `head`, against one page. */
static void attend_page(state s, long head, const float *page, long keys) {
    float *gathered = s.gathered + head * DV;
    for (long j = 0; j < keys; j += NR) tile_scores(s.query + head * DQ, s.kt + j * DQ, s.scores + j);
    for (long i = 0; i < MR; i++) {
        float shrink = soften(s.scores + i * BK, keys, (keys + NR - 1) / NR * NR, &s.top[head + i], &s.total[head + i]);
        if (shrink != 1.0f)
            for (long p = 0; p < DV; p += VL) *(loose *)(gathered + i * DV + p) *= shrink;
    }
    for (long p = 0; p < DV; p += NR) tile_values(s.scores, page + p, keys, gathered + p);
}

static void decode(const float *q, const float *cache, const int64_t *table, float *o, long h, long kv, float scale,
                   float *scratch) {
    state s = {scratch, scratch + HEADS * DQ};
    s.top = s.gathered + HEADS * DV, s.total = s.top + HEADS, s.scores = s.total + HEADS, s.kt = s.scores + MR * BK;
    long padded = (h + MR - 1) / MR * MR;
    memset(s.gathered, 0, sizeof(float) * HEADS * DV);
    for (long i = 0; i < padded * DQ; i++) s.query[i] = i < h * DQ ? q[i] * scale : 0.0f;
    for (long i = 0; i < padded; i++) s.top[i] = -FLT_MAX, s.total[i] = 0.0f;
    for (long k0 = 0; k0 < kv; k0 += BK) {
        const float *page = cache + table[k0 / BK] * BK * DQ;
        long keys = least(BK, kv - k0);
        transpose_page(page, keys, s.kt);
        for (long head = 0; head < padded; head += MR) attend_page(s, head, page, keys);
    }
    for (long i = 0; i < h; i++)
        for (long p = 0; p < DV; p++) o[i * DV + p] = s.gathered[i * DV + p] / s.total[i];
}

long mla_decode_f32_workspace(int threads) { return sizeof(float) * (long)threads * BLOCK_FLOATS; }

void mla_decode_f32(const float *q, const float *cache, const int64_t *table, float *o, long b, long h, long kv,
                    float scale, float *workspace, int threads) {
    const float log2_e = 1.44269504f;
    long pages = (kv + BK - 1) / BK;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < b; i++)
        decode(q + i * h * DQ, cache, table + i * pages, o + i * h * DV, h, kv, scale * log2_e,
               workspace + omp_get_thread_num() * BLOCK_FLOATS);
}
