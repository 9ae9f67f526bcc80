/* GEMM for a few rows with bfloat16 storage: C[m,n] = A[m,k] * W[n,k]^T, m <= 16, sums in float32.
 *
 * Half the bytes of the float32 version. A bfloat16 is the upper half of a float: widening is a shift. Pairs of values are
 * widened together: the even ones by a shift, the odd ones by a mask.
 */
#include <omp.h>
#include <stdint.h>

#define RW 4 /* rows of W read together */
#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif

typedef float vec __attribute__((vector_size(VL * 4)));
typedef uint32_t bits __attribute__((vector_size(VL * 4)));
typedef bits loose_bits __attribute__((aligned(2), may_alias));

static inline float widen(uint16_t value) {
    union {
        uint32_t bits;
        float value;
    } both = {(uint32_t)value << 16};
    return both.value;
}

/* Round to nearest, ties to even. */
static inline uint16_t narrow(float value) {
    union {
        float value;
        uint32_t bits;
    } both = {value};
    return (uint16_t)((both.bits + 0x7FFF + ((both.bits >> 16) & 1)) >> 16);
}

static inline vec even(bits pair) { return (vec)(pair << 16); }
static inline vec odd(bits pair) { return (vec)(pair & 0xFFFF0000u); }

static inline float total(vec x) {
    float sum = 0.0f;
    for (int v = 0; v < VL; v++) sum += x[v];
    return sum;
}

static void rows_of_w(const uint16_t *a, const uint16_t *w, uint16_t *c, long m, long n, long k, long count) {
    for (long i = 0; i < m; i++) {
        const uint16_t *row = a + i * k;
        vec sum[RW] = {{0}};
        long p = 0;
        if (count == RW)
            for (; p + 2 * VL <= k; p += 2 * VL) {
                bits left = *(const loose_bits *)(row + p);
                vec left_even = even(left), left_odd = odd(left);
#pragma GCC unroll 8
                for (int r = 0; r < RW; r++) {
                    bits right = *(const loose_bits *)(w + r * k + p);
                    sum[r] += left_even * even(right);
                    sum[r] += left_odd * odd(right);
                }
            }
        for (int r = 0; r < count; r++) {
            float rest = 0.0f;
            for (long q = p; q < k; q++) rest += widen(row[q]) * widen(w[r * k + q]);
            c[i * n + r] = narrow(total(sum[r]) + rest);
        }
    }
}

void gemm_skinny_bf16(const uint16_t *a, const uint16_t *w, uint16_t *c, long m, long n, long k, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long j = 0; j < n; j += RW) rows_of_w(a, w + j * k, c + j, m, n, k, n - j < RW ? n - j : RW);
}
