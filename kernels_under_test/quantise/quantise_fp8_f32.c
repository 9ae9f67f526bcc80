/* FP8 E4M3 codes with one scale per 128 channels: code = round(x / scale), scale = largest |x| / 448.
 *
 * codes[t, h] bytes, scales[t, h / 128] floats behind them in the same output (at the byte t * h). Rounding to E4M3 in
 * integer arithmetic on the bits of a float: add half of what is cut off (ties to even), shift, move the exponent.
 * Values below the smallest normal 2^-6 are rounded by adding a number whose last bit is worth 2^-9.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>

#define GROUP 128

static inline uint32_t bits_of(float value) {
    union {
        float value;
        uint32_t bits;
    } both = {value};
    return both.bits;
}

static inline uint8_t encode(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 24 & 0x80, size = bits & 0x7FFFFFFF;
    uint32_t rounded = (size + 0x7FFFF + (size >> 20 & 1)) >> 20;    /* 8 bits of exponent, 3 of fraction */
    uint32_t normal = rounded - (120 << 3);                          /* bias 127 -> 7 */
    uint32_t small = bits_of(fabsf(value) + 16384.0f) & 0xF;         /* 2^14: its last bit is 2^-9 */
    return (uint8_t)(sign | (size < 0x3C800000 ? small : normal));   /* 0x3C800000 is 2^-6 */
}

static float quantise_group(const float *x, uint8_t *codes) {
    float top = 1e-10f;
#pragma omp simd reduction(max : top)
    for (int j = 0; j < GROUP; j++) top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
    float scale = top / 448.0f;
#pragma omp simd
    for (int j = 0; j < GROUP; j++) codes[j] = encode(x[j] / scale);
    return scale;
}

void quantise_fp8_f32(const float *x, uint8_t *out, long t, long h, int threads) {
    float *scales = (float *)(out + t * h);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long group = 0; group < t * h / GROUP; group++)
        scales[group] = quantise_group(x + group * GROUP, out + group * GROUP);
}
