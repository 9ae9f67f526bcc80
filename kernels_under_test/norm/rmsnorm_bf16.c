/* RMSNorm of rows in bfloat16 storage, computed in float32. */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

static inline float widen(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Round to nearest, ties to even. */
static inline uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void rmsnorm_bf16(const uint16_t *x, const uint16_t *weight, uint16_t *out, long rows, long cols, float epsilon,
                  int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const uint16_t *row = x + r * cols;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < cols; j++) sum += widen(row[j]) * widen(row[j]);
        float scale = 1.0f / sqrtf(sum / (float)cols + epsilon);
#pragma omp simd
        for (long j = 0; j < cols; j++) out[r * cols + j] = narrow(widen(row[j]) * scale * widen(weight[j]));
    }
}
