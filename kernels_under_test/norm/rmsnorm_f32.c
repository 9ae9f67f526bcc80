/* RMSNorm of rows: out = x / sqrt(mean(x^2) + epsilon) * weight. Two passes, the second from the cache. */
#include <math.h>
#include <omp.h>

void rmsnorm_f32(const float *x, const float *weight, float *out, long rows, long cols, float epsilon, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const float *row = x + r * cols;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < cols; j++) sum += row[j] * row[j];
        float scale = 1.0f / sqrtf(sum / (float)cols + epsilon);
#pragma omp simd
        for (long j = 0; j < cols; j++) out[r * cols + j] = row[j] * scale * weight[j];
    }
}
