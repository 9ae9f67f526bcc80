/* Residual add fused with RMSNorm: out[0] = x + residual, out[1] = its RMSNorm; the sum is taken while adding. */
#include <math.h>
#include <omp.h>

void add_rmsnorm_f32(const float *x, const float *residual, const float *weight, float *out, long rows, long cols,
                     float epsilon, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const float *left = x + r * cols, *right = residual + r * cols;
        float *added = out + r * cols, *normed = out + (rows + r) * cols;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < cols; j++) {
            float value = left[j] + right[j];
            added[j] = value;
            sum += value * value;
        }
        float scale = 1.0f / sqrtf(sum / (float)cols + epsilon);
#pragma omp simd
        for (long j = 0; j < cols; j++) normed[j] = added[j] * scale * weight[j];
    }
}
