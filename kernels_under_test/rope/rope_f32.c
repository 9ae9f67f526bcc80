/* Rotary position embedding, halves convention: (a, b) -> (a cos - b sin, b cos + a sin). */
#include <omp.h>

void rope_f32(const float *x, const float *cosine, const float *sine, float *out, long t, long heads, long d,
              int threads) {
    long half = d / 2;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long token = 0; token < t; token++) {
        const float *c = cosine + token * half, *s = sine + token * half;
        for (long head = token * heads; head < (token + 1) * heads; head++) {
            const float *in = x + head * d;
            float *to = out + head * d;
#pragma omp simd
            for (long j = 0; j < half; j++) {
                to[j] = in[j] * c[j] - in[j + half] * s[j];
                to[j + half] = in[j + half] * c[j] + in[j] * s[j];
            }
        }
    }
}
