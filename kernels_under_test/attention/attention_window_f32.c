/* Causal attention over a sliding window, with a sink for each head, flash-style in single precision.
 *
 * q[b,hq,sq,d], k[b,hkv,skv,d], v[b,hkv,skv,d], sinks[hq] -> o[b,hq,sq,d]. A query at position p sees the keys p - window + 1
 * to p; its sink is one more score that takes weight and gives no value. Blocks of keys outside the window of all MR
 * queries of a tile are never touched, so the work grows with the window, not with the sequence.
 */
#include <float.h>
#include <omp.h>
#include <string.h>

#define MR 12  /* queries in a register tile */
#define BK 128 /* keys in a block, a multiple of NR */
#define DMAX 256
#ifdef __AVX512F__
#define VL 16
#define VR 2
#else
#define VL 8
#define VR 1
#endif
#define NR (VL * VR)
#define BLOCK_FLOATS (MR * DMAX * 2 + MR * BK)

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

static void tile_scores(const float *q, const float *kt, long depth, float *scores) {
    tile(q, DMAX, kt, NR, depth, scores, BK, 1);
}

static void tile_values(const float *p, const float *v, long ldv, long keys, float *out) {
    tile(p, BK, v, ldv, keys, out, DMAX, 0);
}

/* Panels of NR keys, each d x NR; keys beyond skv are zeros. */
static void transpose_keys(const float *k, long skv, long d, float *out) {
    for (long j = 0; j < skv; j += NR, out += d * NR) {
        long cols = least(NR, skv - j);
        if (cols < NR) memset(out, 0, sizeof(float) * d * NR);
        for (long jj = 0; jj < cols; jj++)
            for (long p = 0; p < d; p++) out[p * NR + jj] = k[(j + jj) * d + p];
    }
}

/* Softmax of one row of a block: scores become weights, the running maximum and sum are updated; returns the factor
 * by which everything gathered so far shrinks. */
static float soften(float *row, long first, long keys, long padded, float *top, float *total) {
    for (long j = 0; j < first; j++) row[j] = -FLT_MAX;
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
    for (long j = 0; j < first; j++) row[j] = 0.0f;
    for (long j = keys; j < padded; j++) row[j] = 0.0f;
    float part = 0.0f;
    for (int v = 0; v < VL; v++) part += sum[v];
    float shrink = exp2_vec((vec){} + (*top - peak))[0];
    *total = *total * shrink + part;
    *top = peak;
    return shrink;
}

static inline long within(long value, long high) { return value < 0 ? 0 : least(value, high); }

/* `rows` <= MR queries that start at position `position`, against the keys of their windows. */
static void attend(const float *q, const float *kt, const float *v, float *o, long rows, long position, long d,
                   long window, float sink, float scale, float *scratch) {
    float *query = scratch, *gathered = query + MR * DMAX, *scores = gathered + MR * DMAX;
    float top[MR], total[MR];
    memset(gathered, 0, sizeof(float) * MR * DMAX);
    for (long i = 0; i < MR; i++) {
        top[i] = sink, total[i] = 1.0f;
        for (long p = 0; p < d; p++) query[i * DMAX + p] = i < rows ? q[i * d + p] * scale : 0.0f;
    }
    long seen = position + rows, start = position - window + 1 < 0 ? 0 : (position - window + 1) / NR * NR;
    for (long k0 = start; k0 < seen; k0 += BK) {
        long keys = least(BK, seen - k0), padded = (keys + NR - 1) / NR * NR;
        for (long j = 0; j < padded; j += NR) tile_scores(query, kt + (k0 + j) * d, d, scores + j);
        for (long i = 0; i < rows; i++) {
            long last = within(position + i + 1 - k0, keys), first = within(position + i + 1 - window - k0, padded);
            float shrink = soften(scores + i * BK, first, last, padded, &top[i], &total[i]);
            if (shrink != 1.0f)
                for (long p = 0; p < d; p += VL) *(loose *)(gathered + i * DMAX + p) *= shrink;
        }
        for (long p = 0; p < d; p += NR) tile_values(scores, v + k0 * d + p, d, keys, gathered + p);
    }
    for (long i = 0; i < rows; i++)
        for (long p = 0; p < d; p++) o[i * d + p] = gathered[i * DMAX + p] / total[i];
}

long attention_window_f32_workspace(long skv, long d, int threads) {
    return sizeof(float) * ((skv + NR) * d + (long)threads * BLOCK_FLOATS);
}

void attention_window_f32(const float *q, const float *k, const float *v, const float *sinks, float *o, long b, long hq,
                          long hkv, long sq, long skv, long d, long window, float scale, float *workspace, int threads) {
    const float log2_e = 1.44269504f;
    float *kt = workspace + (long)threads * BLOCK_FLOATS;
    for (long kv = 0; kv < b * hkv; kv++) {
        transpose_keys(k + kv * skv * d, skv, d, kt);
        long group = hq / hkv, tiles = (sq + MR - 1) / MR;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
        for (long t = 0; t < group * tiles; t++) {
            long head = kv * group + t / tiles, q0 = t % tiles * MR;
            attend(q + (head * sq + q0) * d, kt, v + kv * skv * d, o + (head * sq + q0) * d, least(MR, sq - q0),
                   skv - sq + q0, d, window, sinks[head % hq] * log2_e, scale * log2_e,
                   workspace + omp_get_thread_num() * BLOCK_FLOATS);
        }
    }
}
