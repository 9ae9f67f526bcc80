/* Softmax of rows: the maximum, the exponentials with their sum, the division. */
#include <float.h>
#include <omp.h>

#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif

#define RUN 2048 /* columns added in single precision: a vocabulary of small terms would vanish beside a large one */

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int ivec __attribute__((vector_size(VL * 4)));
typedef vec loose __attribute__((aligned(4), may_alias));

/* e^x for x <= 0 as 2^(x log2 e): integer part by adding 1.5 * 2^23, a polynomial for the rest (error 1.2e-7). */
static inline vec exp_vec(vec x) {
    const vec magic = (vec){} + 12582912.0f, low = (vec){} - 126.0f;
    x *= 1.44269504f;
    ivec under = x < low;
    x = (vec)(((ivec)low & under) | ((ivec)x & ~under));
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

static void softmax_row(const float *x, float *out, long cols) {
    float top = -FLT_MAX;
#pragma omp simd reduction(max : top)
    for (long j = 0; j < cols; j++) top = x[j] > top ? x[j] : top;
    double sum = 0.0;
    long j = 0;
    while (j + VL <= cols) {
        long end = j + RUN < cols ? j + RUN : cols;
        vec sums = {0};
        for (; j + VL <= end; j += VL) {
            vec weight = exp_vec(*(const loose *)(x + j) - top);
            *(loose *)(out + j) = weight;
            sums += weight;
        }
        for (int v = 0; v < VL; v++) sum += sums[v];
    }
    for (; j < cols; j++) sum += out[j] = exp_vec((vec){} + (x[j] - top))[0];
    float share = (float)(1.0 / sum);
#pragma omp simd
    for (long i = 0; i < cols; i++) out[i] *= share;
}

void softmax_f32(const float *x, float *out, long rows, long cols, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) softmax_row(x + r * cols, out + r * cols, cols);
}
