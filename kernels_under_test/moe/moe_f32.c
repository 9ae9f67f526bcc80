/* A mixture-of-experts layer in single precision, grouped by expert.
 *
 * x[t,h], logits[t,e], up_gate[e,h,2i] (gate columns, then up columns), down[e,i,h] -> out[t,h]
 * out[t] = sum over the `topk` experts of a token of weight * (silu(x gate) * (x up)) down; the weights are the softmax
 * over the chosen logits. Tokens are counted and sorted by expert (stable, so sums have one order: no atomics), then
 * each expert is two matrix products over its own rows, MR rows at a time.
 */
#include <omp.h>
#include <string.h>

#define MR 12  /* rows of the register tile */
#define KC 256 /* depth of a packed tile */
#define KMAX 64 /* largest topk */
#ifdef __AVX512F__
#define VL 16
#define VR 2
#else
#define VL 8
#define VR 1
#endif
#define NR (VL * VR)

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int ivec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias));

typedef struct {
    long t, e, topk, h, i, rows; /* rows: t * topk */
} sizes;

static inline long least(long a, long b) { return a < b ? a : b; }

/* e^x by 2^(x log2 e), x clamped to what a float holds. */
static inline vec exp_vec(vec x) {
    const vec magic = (vec){} + 12582912.0f, low = (vec){} - 126.0f, high = (vec){} + 126.0f;
    x *= 1.44269504f;
    ivec under = x < low, over = x > high;
    x = (vec)(((ivec)low & under) | ((ivec)high & over) | ((ivec)x & ~(under | over)));
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

/* The topk largest logits of a token and their softmax weights. */
static void choose(const float *logits, sizes z, int *experts, float *weights) {
    float values[KMAX];
    long held = 0;
    for (long e = 0; e < z.e; e++) {
        if (held == z.topk && logits[e] <= values[held - 1]) continue;
        long at = held < z.topk ? held++ : held - 1;
        for (; at > 0 && values[at - 1] < logits[e]; at--) values[at] = values[at - 1], experts[at] = experts[at - 1];
        values[at] = logits[e], experts[at] = (int)e;
    }
    float total = 0.0f;
    for (long j = 0; j < z.topk; j++) total += weights[j] = exp_vec((vec){} + (values[j] - values[0]))[0];
    for (long j = 0; j < z.topk; j++) weights[j] /= total;
}

/* Counting sort: rows of expert e are order[start[e]] .. order[start[e+1]-1], in token order. */
static void sort_by_expert(const int *experts, sizes z, int *start, int *order) {
    memset(start, 0, sizeof(int) * (z.e + 1));
    for (long r = 0; r < z.rows; r++) start[experts[r] + 1]++;
    for (long e = 0; e < z.e; e++) start[e + 1] += start[e];
    for (long r = 0; r < z.rows; r++) order[start[experts[r]]++] = (int)r;
    for (long e = z.e; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;
}

/* c += a * b for MR rows and NR columns over `depth` steps. */
static void tile(const float *a, const float *b, long depth, float *c, long ldc) {
    vec sum[MR][VR];
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) sum[i][v] = *(const loose *)(c + i * ldc + v * VL);
    for (long p = 0; p < depth; p++) {
        vec right[VR];
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) right[v] = *(const loose *)(b + p * NR + v * VL);
#pragma GCC unroll 32
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int v = 0; v < VR; v++) sum[i][v] += a[i * KC + p] * right[v];
    }
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VR; v++) *(loose *)(c + i * ldc + v * VL) = sum[i][v];
}

/* NR columns of b[depth, n], packed without gaps; columns beyond `cols` are zeros. */
static void pack_columns(const float *b, long n, long depth, long cols, float *out) {
    for (long p = 0; p < depth; p++)
        if (cols == NR)
            memcpy(out + p * NR, b + p * n, sizeof(float) * NR);
        else
            for (long j = 0; j < NR; j++) out[p * NR + j] = j < cols ? b[p * n + j] : 0.0f;
}

/* c[rows, n] = a[index[r] / divide, k] * b[k, n]; rows are padded to MR and c to whole tiles (ldc). */
static void product(const float *a, const int *index, long divide, long rows, const float *b, long n, long k, float *c,
                    long ldc, float *panel, float *packed) {
    long tiles = (rows + MR - 1) / MR;
    memset(c, 0, sizeof(float) * tiles * MR * ldc);
    for (long p0 = 0; p0 < k; p0 += KC) {
        long depth = least(KC, k - p0);
        for (long r = 0; r < tiles * MR; r++) {
            if (r < rows) memcpy(packed + r * KC, a + (index ? index[r] / divide : r) * k + p0, sizeof(float) * depth);
            else memset(packed + r * KC, 0, sizeof(float) * depth);
        }
        for (long j = 0; j < n; j += NR) {
            pack_columns(b + p0 * n + j, n, depth, least(NR, n - j), panel);
            for (long r = 0; r < tiles; r++) tile(packed + r * MR * KC, panel, depth, c + r * MR * ldc + j, ldc);
        }
    }
}

static void activate(const float *both, long ldb, long rows, long i, float *out) {
    for (long r = 0; r < rows; r++, both += ldb, out += i) {
        long j = 0;
        for (; j + VL <= i; j += VL) {
            vec gate = *(const loose *)(both + j), up = *(const loose *)(both + i + j);
            *(loose *)(out + j) = gate / (1.0f + exp_vec(-gate)) * up;
        }
        for (; j < i; j++) out[j] = both[j] / (1.0f + exp_vec((vec){} - both[j])[0]) * both[i + j];
    }
}

static long padded(long n, long step) { return (n + step - 1) / step * step; }

/* Floats that one expert needs for `rows` rows: both halves, activated, result, packed rows, a panel. */
static long expert_floats(sizes z) {
    long rows = padded(z.t, MR);
    return rows * (padded(2 * z.i, NR) + z.i + padded(z.h, NR) + KC) + KC * NR;
}

long moe_f32_workspace(long t, long e, long topk, long h, long i, int threads) {
    sizes z = {t, e, topk, h, i, t * topk};
    return 4 * (z.rows * (3 + h) + e + 16 + threads * expert_floats(z));
}

/* Both products of one expert; results go to their rows of `parts`, so that the sum over experts has a fixed order. */
static void run_expert(const float *x, const float *up_gate, const float *down, const int *order, long rows, sizes z,
                       float *parts, float *scratch) {
    long ldb = padded(2 * z.i, NR), ldr = padded(z.h, NR), space = padded(z.t, MR);
    float *both = scratch, *active = both + space * ldb, *result = active + space * z.i;
    float *packed = result + space * ldr, *panel = packed + space * KC;
    product(x, order, z.topk, rows, up_gate, 2 * z.i, z.h, both, ldb, panel, packed);
    activate(both, ldb, rows, z.i, active);
    product(active, 0, 1, rows, down, z.h, z.i, result, ldr, panel, packed);
    for (long r = 0; r < rows; r++) memcpy(parts + order[r] * z.h, result + r * ldr, sizeof(float) * z.h);
}

void moe_f32(const float *x, const float *logits, const float *up_gate, const float *down, float *out, long t, long e,
             long topk, long h, long i, float *workspace, int threads) {
    sizes z = {t, e, topk, h, i, t * topk};
    float *weights = workspace, *parts = weights + z.rows;
    int *experts = (int *)(parts + z.rows * h), *order = experts + z.rows, *start = order + z.rows;
    float *scratch = (float *)(start + e + 16);
    for (long r = 0; r < t; r++) choose(logits + r * e, z, experts + r * topk, weights + r * topk);
    sort_by_expert(experts, z, start, order);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (long x_id = 0; x_id < e; x_id++) {
        long rows = start[x_id + 1] - start[x_id];
        if (rows > 0)
            run_expert(x, up_gate + x_id * h * 2 * i, down + x_id * i * h, order + start[x_id], rows, z, parts,
                       scratch + omp_get_thread_num() * expert_floats(z));
    }
    memset(out, 0, sizeof(float) * t * h);
    for (long r = 0; r < z.rows; r++) {
        float *row = out + r / topk * h;
        for (long j = 0; j < h; j++) row[j] += weights[r] * parts[r * h + j];
    }
}
